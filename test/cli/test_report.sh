#!/bin/bash
# ctest: timeout=120
# weft report: pages from what commands really write and from results of every kind, bad input, hostile names, size;
# and in a browser, where there is one.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=test/cli/report_inputs.sh
. "$WEFT_SOURCE/test/cli/report_inputs.sh"

# report ARGUMENT...: weft report with stdout, stderr and status in $out, $err, $status
report() {
    "$weft" report "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out)
    err=$(cat err)
}
have_python=no
if command -v python3 >/dev/null && python3 -c 'import html.parser, zlib' 2>/dev/null; then
    have_python=yes
else
    echo "not tried: whether pages are well-formed: there is no python3 here"
fi
# expect_page FILE PLOTS: a sound page with so many plots
expect_page() {
    local plots found
    plots=$(grep -o '<svg role="img"' "$1" | wc -l)
    [ "$plots" = "$2" ] || fail "$plots plots, not $2, in $1"
    [ $have_python = yes ] || return 0
    found=$(python3 "$WEFT_SOURCE/test/cli/check_page.py" "$1") && [ "$found" = "plots: $2" ] || fail "$1: $found"
}

# expect_part FILE PART: without the page on the screen
expect_part() { grep -qF -- "$2" "$1" || fail "'$2' is not in $1"; }

# ---- what commands write -----------------------------------------------------------------------

seq 1 3000 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 16,
 "n_head": 2, "n_positions": 32, "vocab_size": 257, "activation_function": "gelu_new"}
END
name="a run with a trace, and results of weft bench"
mkdir run
train -n 2 --model ./config.json --data text --batch 4 --steps 6 --eval 3 --out run --trace run/trace.json
expect_status 0
"$weft" bench allreduce -n 2 -b 1K -e 64K -f 4 --iters 5 --repeat 3 --json bench.json >out 2>err || fail "$(cat err)"
"$weft" bench halo -n 2 --iters 5 --repeat 3 --json halo.json >out 2>err || fail "$(cat err)"
report run bench.json halo.json -o all.html
expect_status 0
[ "$out" = "the report is in all.html" ] || fail "it says: $out"
for part in 'id="training"' 'id="timeline"' 'id="bandwidth"' 'id="pairs"' 'id="machine"' '>Loss</b>' '>Throughput</b>' \
    '>Learning rate</b>' '>Gradient norm</b>' 'allreduce: bandwidth' 'bus bandwidth' 'allreduce: time' '>rank 1</text>' \
    'halo, 1 KiB' '<summary>configuration' 'WEFT_ALGO' '<td>lr-schedule</td>'; do
    expect_part all.html "$part"
done
# loss, throughput, rate, norm, shares; mfu where the peak is known; timeline; 2 of allreduce; halo
expect_page all.html $((9 + $(grep -c 'MFU)</b>' all.html)))
loss=$(losses run | tail -1)
expect_part all.html "$(printf '6,%.5g ' "$loss")" # the last point of the line is what the run has written

name="weft report RUN writes report.html; - is stdout, and the same bytes"
report run
expect_status 0
report run -o -
expect_status 0
cmp -s out report.html || fail "stdout is not what is in the file"
expect_page report.html $((6 + $(grep -c 'MFU)</b>' all.html)))

name="files of a run, one by one"
report run/metrics.jsonl -o one.html --title "My <title>"
expect_part one.html "<title>My &lt;title&gt;</title>"
report run/trace.json -o one.html
expect_page one.html 1
expect_part one.html ", trace</b>"

name="two runs share their plots"
cp -r run other
report run other -o two.html
expect_page two.html $((7 + $(grep -c 'MFU)</b>' all.html)))
expect_part two.html 'data-n="run"'
expect_part two.html 'data-n="other"'
for part in 'run, training' 'run, validation' 'other, training' 'other, validation'; do
    expect_part two.html "</svg>$part</span>"
done
name="the title counts what was named, the head has dates and commits"
report run other bench.json -o many.html
expect_part many.html '<title>Weft report: run and 2 more</title>' # with traces and records
started=$(sed -n 's/.*"started": "\([^"]*\)".*/\1/p' run/machine.json)
commit=$(sed -n 's/.*"commit": "\([^"]*\)".*/\1/p' run/machine.json)
expect_part many.html "Measured: run: $started${commit:+, commit $commit}; other: $started"
expect_part many.html '; bench: 20'
name="a time counts once, however many spans it has"
# on a track of its own, on the same one, half beside; on the other rank one after the other
cat >nested.json <<'END'
{"traceEvents": [
 {"ph": "X", "name": "pair", "pid": 0, "tid": 0, "ts": 0, "dur": 400000}, {"ph": "X", "name": "a", "pid": 0, "tid": 1, "ts": 10000, "dur": 150000},
 {"ph": "X", "name": "b", "pid": 0, "tid": 1, "ts": 200000, "dur": 100000}, {"ph": "X", "name": "in b", "pid": 0, "tid": 1, "ts": 210000, "dur": 50000},
 {"ph": "X", "name": "c", "pid": 0, "tid": 1, "ts": 350000, "dur": 100000}, {"ph": "X", "name": "forward", "pid": 0, "tid": 1, "ts": 20000, "dur": 30000},
 {"ph": "X", "name": "a", "pid": 1, "tid": 0, "ts": 0, "dur": 100000}, {"ph": "X", "name": "b", "pid": 1, "tid": 0, "ts": 300000, "dur": 50000}]}
END
report nested.json -o nested.html
expect_status 0
grep -q '<td>rank 0</td>.*>30\.000</td>.*>450\.000</td>' nested.html || fail "rank 0: $(grep '<td>rank 0' nested.html)"
grep -q '<td>rank 1</td>.*>0\.000</td>.*>150\.000</td>' nested.html || fail "rank 1: $(grep '<td>rank 1' nested.html)"

# ---- results of every kind ---------------------------------------------------------------------

name="every kind of result"
write_links 8 >links.json
write_pairs >pairs.json
write_scaling >scaling.json
write_train >train.json
write_doctor >doctor.json
report links.json pairs.json scaling.json train.json doctor.json -o kinds.html
expect_status 0
# 3 heat maps, permutations, all-to-all, memory, all-reduce; 2 groups of pairs; 3 of scaling; 4 of training
expect_page kinds.html 16
for part in '<g class="h0 slow">' '2 → 5: 1' ', PCIe SYS</title>' '2 to 5 reaches 60%' 'shift by 7' 'rank 7' 'host write' \
    'halo: one-sided, 1 KiB: 1.41 (1.35 to 1.47), faster</title>' 'the same' 'GPipe' 'interleaved' 'data-n="weak"' \
    'data-n="strong"' 'data-n="perfect"' 'strong 8: dp 2, tp 2, pp 2, bubble: ' 'bf16 gradients' '19.7%' 'dp 4, tp 2' \
    'train, activations: 3 GiB</title>' 'reseat the card' 'NVIDIA H100' 'WEFT_CHUNK'; do
    expect_part kinds.html "$part"
done
name="what was not looked at, what cannot be told, other plans, remedies"
for part in '<summary>1 passed, 1 skipped</summary>' '>skipped</span></td><td>ib</td>' 'there is no InfiniBand here' \
    '>ok</span></td><td>memlock</td>' '</svg>noisy</span>' 'restless: put, 64 B: 1.1 (0.7 to 1.6), noisy</title>' \
    'Median of the ratios of the blocks, and its 95% interval.' '<td>other plan</td><td class="n" data-v="6">' \
    'other plan 6: tp 6, communication: ' '>communication</th>' 'scaling: for dp 8 on 8 ranks, which reaches 241.3k tokens/s.' \
    '<td>--bucket 100M</td><td>dp 8</td>' '>4.99%</td>' '>22.3%</td>'; do
    expect_part kinds.html "$part"
done
grep -q 'data-v="[^"]*6,77700' kinds.html && fail "another plan is on a curve"
grep -q 'Ratio of medians' kinds.html && fail "not the ratio of medians"
[ "$(grep -c '<g class="h[0-8]\( slow\)\?">' kinds.html)" = 168 ] || fail "not 56 cells in each heat map"

name="ranks of one and of seven, and missing parts"
write_links 7 >seven.json
report seven.json -o seven.html
expect_page seven.html 7
write_links 1 >one.json
report one.json -o one.html
expect_status 0
expect_part one.html "no pairs of ranks"
for kind in bench links pairs scaling train doctor; do
    head_of $kind | sed '$s/,$/}/' >bare.json
    report bare.json -o bare.html
    expect_status 0
    expect_page bare.html 0
    # members of other types than they should have
    { head_of $kind && echo '"results": [1, {"collective": 5, "us": "x"}], "pairs": [[], {"from": "a", "ways": 3}], "points": [null, {"lost": []}],
        "findings": [7, {"level": {}}], "time": {"a": "b"}, "memory": 3, "step_ms": {}, "loss": [null], "permutations": [{}], "alltoall": []}'; } >odd.json
    report odd.json -o odd.html
    expect_status 0
    # a pair without ranks is left out with a note; the same for results without times
    case $kind in
    bench) expect_part odd.html "without times that can be shown, which are left out: 2" ;;
    links) expect_part odd.html "between which ranks, which are left out: 2" ;;
    pairs) expect_part odd.html "without ways that can be shown, which are left out: 2" ;;
    esac
done

# ---- size --------------------------------------------------------------------------------------

name="1,000 steps and links of 8 ranks are less than 300 KB"
write_metrics 1000 >metrics.jsonl
report metrics.jsonl links.json -o size.html
expect_status 0
size=$(stat -c %s size.html)
[ "$size" -lt 300000 ] || fail "$size bytes"
expect_part size.html " 500,4." # the peak of the loss is not thinned away
name="100,000 steps are not much larger"
write_metrics 100000 >many.jsonl
report many.jsonl links.json -o many.html
expect_status 0
[ "$(stat -c %s many.html)" -lt 200000 ] || fail "$(stat -c %s many.html) bytes"

# ---- names that would like to be more ----------------------------------------------------------

name="hostile text stays text"
long=$(printf 'x%.0s' {1..5000})
evil='</script></title><script>alert(1)</script><img src=x onerror=alert(2)>\" onload=\"alert(3)\u0000\u0001&lt;'
hostile='</svg><b id=">'
mkdir "$hostile" 2>/dev/null || hostile='<b id=">' # a slash is none of a name's
mkdir -p "$hostile"
for kind in links pairs scaling train doctor bench; do
    case $kind in
    links) body='"pairs": [{"from": 0, "to": 1, "link": "EVIL", "one_way_gbs": 5, "slow": true}], "findings": [{"text": "EVIL"}],
        "memory": [{"where": "EVIL", "what": "LONG", "gbs": 3}], "permutations": [{"shift": "EVIL", "gbs": 2}],
        "allreduce": [{"algorithm": "EVIL", "bytes": 8, "us": 3}]}' ;;
    pairs) body='"pairs": [{"name": "EVIL", "group": "LONG", "bytes": 8, "baseline": "EVIL", "ways": [{"name": "EVIL", "ratio": 2, "verdict": "EVIL"}]}]}' ;;
    scaling) body='"points": [{"mode": "EVIL", "ranks": 2, "plan": "EVIL", "tokens_per_s": 5, "efficiency": 0.5, "lost": {"EVIL": 1, "LONG": 2}}],
        "remedies": [{"name": "EVIL", "gain": 1}]}' ;;
    train) body='"model": "EVIL", "plan": {"EVIL": "LONG"}, "time": {"EVIL": 1}, "memory": {"EVIL": 5}, "step_ms": [1, 2]}' ;;
    doctor) body='"findings": [{"check": "EVIL", "level": "EVIL", "what": "LONG", "evidence": "EVIL", "cost": "EVIL", "fix": "EVIL"}]}' ;;
    bench) body='"results": [{"collective": "EVIL", "bytes": 8, "us": [1], "algorithm": "EVIL"}, {"target": "EVIL", "other": "LONG", "us": [1], "other_us": [2]}]}' ;;
    esac
    { head_of $kind | sed 's/"host": "node17"/"host": "EVIL", "EVIL": "EVIL"/; s/"--json"/"EVIL"/' && echo "$body"; } >template
    body=$(cat template)
    body=${body//EVIL/"$evil"}
    printf '%s\n' "${body//LONG/"$long"}" >"$hostile/$kind.json"
done
printf '%s' '{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "EVIL"}}, {"ph": "X", "name": "EVIL", "pid": 0, "tid": 1, "ts": 5, "dur": 9}]}' >template
body=$(cat template)
printf '%s' "${body//EVIL/"$evil"}" >"$hostile/trace.json"
report "$hostile"/*.json -o hostile.html --title "$evil"
expect_status 0
expect_page hostile.html "$(grep -o '<svg role="img"' hostile.html | wc -l)"
[ "$(grep -c '<script' hostile.html)" = 1 ] || fail "a second script"
grep -q '<img\|<b id' hostile.html && fail "an element of theirs"
[ "$(tr -d -c '\000-\010\013-\037' <hostile.html | wc -c)" = 0 ] || fail "control characters"
expect_part hostile.html '&lt;/script&gt;&lt;/title&gt;&lt;script&gt;alert(1)'

# ---- bad input ---------------------------------------------------------------------------------

# expect_refused PART FILE...: status 1, one sentence on stderr that names the file, nothing written
expect_refused() {
    local part=$1
    shift
    rm -f bad.html
    report "$@" -o bad.html
    expect_status 1
    [ "$(wc -l <err)" = 1 ] || fail "not one sentence: $err"
    expect_in "$err" "$part"
    expect_in "$err" "${*: -1}"
    [ ! -e bad.html ] || fail "something was written"
    [ -z "$out" ] || fail "it says $out"
}
name="bad input: a sentence that names the file, nothing written"
head -c 3000 links.json >torn.json
expect_refused "torn.json, line" metrics.jsonl torn.json
sed 's/"format": 1/"format": 2/' links.json >newer.json
expect_refused "another format" newer.json
: >empty.json
expect_refused "is empty" empty.json
: >empty.jsonl
expect_refused "is empty" empty.jsonl
mkdir folder
expect_refused "no run of weft train" folder
expect_refused "No such file" nowhere.json
head -c 5000 "$weft" >binary.json
expect_refused "does not begin like JSON" binary.json
sed 's/"links"/"soup"/' links.json >soup.json
expect_refused '"soup"' soup.json
"$weft" topo --json topo.json >/dev/null
expect_refused '"topo"' topo.json
echo '{"ranks": 2}' >other.json
expect_refused 'no "kind"' other.json
mkfifo pipe
expect_refused "pipe" pipe
mkdir young && : >young/metrics.jsonl
expect_refused "is empty" young/metrics.jsonl
cp -r run broken && echo '{' >broken/machine.json
report broken -o bad.html
expect_status 1
expect_in "$err" "broken/machine.json"
if [ "$(id -u)" != 0 ]; then
    cp links.json secret.json && chmod 0 secret.json
    expect_refused "Permission denied" secret.json
fi
name="a report that stood there stays when the input is bad"
echo old >old.html
report torn.json -o old.html
[ "$(cat old.html)" = old ] || fail "it is gone"
name="a run that was killed in the middle of a line"
cp -r run killed && printf '{"step": 7, "lo' >>killed/metrics.jsonl
report killed -o killed.html
expect_status 0
expect_part killed.html "the last line is cut short"
name="only pages are written over"
echo notes >notes.txt
report links.json -o notes.txt
expect_status 2
expect_in "$err" "notes.txt is there and is no HTML page"
[ "$(cat notes.txt)" = notes ] || fail "notes.txt is gone"
name="input is not written over"
cp links.json keep.json
ln -s keep.json link.json
for path in keep.json link.json ./keep.json; do
    report keep.json -o $path
    expect_status 2
    expect_in "$err" "one of the files that the report is made of"
done
report run -o run/config
expect_status 2
expect_same links.json keep.json
name="wrong use"
report
expect_status 2
expect_in "$err" "name a run folder"
report run -o nowhere/report.html
expect_status 1
expect_in "$err" "nowhere"

# ---- in a browser ------------------------------------------------------------------------------

# browse OPTION...: chromium without a window; its console on stderr
browse() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking \
        --user-data-dir="$work/browser" --window-size=1000,4600 "$@"
}
name="in a browser: no word on the console, plots that are not blank, values and sorting"
if [ -n "${SANITIZER:-}" ]; then
    report run links.json scaling.json -o browser.html
    expect_status 0
    echo "not tried: $name: the plain build does, and a browser does not care who wrote the page"
elif ! command -v chromium >/dev/null; then
    echo "not tried: $name: there is no chromium here"
elif ! browse --dump-dom about:blank >out 2>err; then
    echo "not tried: $name: chromium does not start here: $(tail -1 err)"
elif [ $have_python = no ]; then
    echo "not tried: $name: there is no python3 here to look at the picture"
else
    report run links.json scaling.json -o browser.html
    # what a reader does, at the end of the page; the result is the title of the page
    cat >probe.js <<'END'
const tip = () => document.getElementById("tip").textContent;
const point = (element, x, y) => element.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: y, bubbles: true}));
const area = document.querySelector("rect.hover"), box = area.getBoundingClientRect();
point(area, box.right - 2, box.top + 5);
const line = tip();
point(document.querySelector("g.slow rect"), 5, 5);
const cell = tip();
const table = [...document.querySelectorAll("#links table")].pop(), head = table.tHead.rows[0].cells[2];
head.click();
const up = table.tBodies[0].rows[0].cells[2].textContent;
head.click();
const down = table.tBodies[0].rows[0].cells[2].textContent;
const boxes = [...document.querySelectorAll("svg[role=img]")].map((plot) => plot.getBoundingClientRect())
    .filter((b) => b.bottom < 4500).map((b) => [b.x, b.y, b.width, b.height].join(","));
document.title = ["LINE", line, "CELL", cell, "SORT", up, down, "BOXES", boxes.join(";"), "END"].join("|");
END
    { sed '/^<\/body>/,$d' browser.html && echo "<script>" && cat probe.js && echo "</script></body></html>"; } >probe.html
    browse --enable-logging=stderr --dump-dom "file://$work/probe.html" >dom 2>console
    grep 'CONSOLE' console && fail "the console is not empty"
    title=$(tr '\n' ' ' <dom | grep -o '<title>LINE|.*|END</title>')
    expect_in "$title" "LINE|step 6 training: "
    expect_in "$title" "CELL|2 → 5: 1"
    expect_in "$title" "SORT|180.1|334.5|" # the medians of both kinds of links
    boxes=$(sed 's/.*BOXES|\([^|]*\)|END.*/\1/' <<<"$title")
    [ "$(tr ';' '\n' <<<"$boxes" | wc -l)" -ge 12 ] || fail "only these plots: $boxes"
    # with scripts and, by the page's own policy, without
    sed "s/script-src 'unsafe-inline'/script-src 'none'/" browser.html >quiet.html
    for page in browser quiet; do
        browse --screenshot="$work/$page.png" "file://$work/$page.html" >out 2>err
        python3 "$WEFT_SOURCE/test/cli/check_page.py" --pixels $page.png "$boxes" 60 >out || fail "$page: $(cat out)"
    done
    # the check would notice: the margin has no plot
    python3 "$WEFT_SOURCE/test/cli/check_page.py" --pixels quiet.png "0,0,18,400" 60 >out && fail "a blank plot is not noticed"
fi

[ $failures = 0 ] || exit 1
echo "all passed"

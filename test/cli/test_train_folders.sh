#!/bin/bash
# ctest: timeout=180 plain
# Where weft train writes, and what it leaves alone: run folders, copies of checkpoints, earlier and later ones.
set -u
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# listed DIR: the names in it, sorted, in one line
listed() { (cd "$1" && echo $(ls -A)); }
# sum DIR: of all that is in it
sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 cksum); }
expect_list() { [ "$(listed "$1")" = "$2" ] || fail "$1 has $(listed "$1"), not $2"; }

seq 1 500 | awk '{ print "line " $1 " of " $1 % 7 ": the quick brown fox counts " $1 * 13 % 101 }' >text
cat >config.json <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 1, "n_embd": 16,
 "n_head": 2, "n_positions": 16, "vocab_size": 257, "activation_function": "gelu_new"}
END
common="--model ./config.json --data text --length 16 --batch 4 --log 100 --eval-share 0"

train $common --steps 8 --save 2 --keep 0 --out run
expect_status 0

name="a copy of a checkpoint is no reason to write where it lies"
mkdir archive
for i in 000002 000004 000006; do cp -r run/step-$i archive/step-$i; done
cp -r run/step-000006 archive/mine
cp -r run/step-000006 best
before=$(sum archive)
for path in archive/mine archive/step-000004 archive best; do
    train --resume $path --steps 10 --keep 1
    expect_status 2
    expect_in "$err" "is not in the folder of the run that saved it: say with --out DIR"
done
[ "$(sum archive)" = "$before" ] || fail "archive was changed"
[ ! -e metrics.jsonl ] && [ ! -e step-000010 ] || fail "files are scattered: $(ls)"
train --resume archive/mine --steps 10 --keep 1 --out archive
expect_status 2
expect_in "$err" "archive holds checkpoints that this run did not write"
train --resume archive/mine --steps 8 --save 1 --keep 1 --out mine
expect_status 0
[ "$(sum archive)" = "$before" ] || fail "archive was changed"
expect_list mine "config latest machine.json metrics.jsonl run.json step-000008 tokens"
train --resume best --steps 7 --save 0 --out ''
expect_status 0
cp best/model.safetensors best/config.json archive
train --resume archive --tokenizer bytes --data text --length 16 --batch 4 --steps 1 --eval-share 0
expect_status 2

name="a folder of transformers is where training starts, and not where it writes"
mkdir hugging
cp best/model.safetensors best/config.json hugging
before=$(listed hugging)
train --resume hugging --tokenizer bytes --data text --length 16 --batch 4 --steps 1 --eval-share 0
expect_status 0
expect_list hugging "$before"
train --resume hugging --tokenizer bytes --data text --length 16 --batch 4 --steps 1 --eval-share 0 --out hugged
expect_status 0
[ -d hugged/step-000001 ] || fail "nothing is saved: $(ls hugged)"

name="a run removes what it wrote, and nothing else"
train $common --steps 4 --save 2 --out kept
cp -r run/step-000008 kept/step-000001 # another's, under a name of ours
cp -r run/step-000002 kept/step-000002.copy
mkdir kept/step-000003 && echo precious >kept/step-000003/notes
train --resume kept --steps 8 --save 1 --keep 1
expect_status 0
expect_list kept "config latest machine-4.json machine.json metrics.jsonl run.json step-000001 step-000002.copy step-000003 step-000008 tokens"

name="another's checkpoint in the way is kept aside"
cp -r run/step-000006 kept/step-000009
before=$(sum kept/step-000009)
train --resume kept/latest --steps 9
expect_status 0
[ "$(sum kept/set-aside-1/step-000009)" = "$before" ] || fail "step-000009 was written over: $(listed kept)"
expect_in "$(cat kept/step-000009/trainer.json)" "$(sed -n 's/.*"id": //p' kept/run.json)"

name="a file or link in the way is kept aside as well"
train $common --steps 2 --save 1 --out way
expect_status 0
echo mine >way/step-000003
ln -s /elsewhere way/step-000004
train --resume way --steps 4
expect_status 0
expect_list way "config latest machine-2.json machine.json metrics.jsonl run.json set-aside-1 set-aside-2 step-000002 step-000003 step-000004 tokens"
[ "$(cat way/set-aside-1/step-000003)" = mine ] || fail "step-000003 was written over: $(listed way)"
[ "$(readlink way/set-aside-2/step-000004)" = /elsewhere ] || fail "step-000004 was written over: $(listed way)"

name="a folder with files of others is not taken for a run"
mkdir project
echo "mine" >project/config
train $common --steps 1 --out project
expect_status 2
expect_in "$err" "project is no run folder, and its config would be written over"
expect_list project config
mkdir numbers
echo "1 2 3" >numbers/metrics.jsonl
train $common --steps 1 --out numbers
expect_status 2
expect_in "$err" "its metrics.jsonl would be written over"
mkdir pipes
mkfifo pipes/metrics.jsonl
train $common --steps 1 --out pipes
expect_status 2
expect_in "$err" "pipes/metrics.jsonl is a pipe, and not a file that a run may write: choose another --out"
echo "{}" >project/run.json
train $common --steps 1 --out project
expect_status 2
expect_in "$err" "project/run.json does not say which run"

name="a run folder that was copied or moved is one"
cp -r run moved
train --resume moved --steps 9
expect_status 0
[ -d moved/step-000009 ] && [ ! -e run/step-000009 ] || fail "it went on elsewhere"

name="run folders of earlier versions are gone on with, and what is in them stays"
mkdir earlier
cp -r run/. earlier
rm earlier/run.json
# Without the name of the run. The checksum is taken with zeros in its place; python may be missing, so is made by weft.
for i in earlier/step-*/trainer.json; do sed -i '/"run": /d' $i; done
train --resume earlier --steps 9
if grep -q "is damaged" <<<"$err"; then
    "$WEFT_BUILD"/test/train/reseal earlier/step-*/trainer.json || fail "reseal"
    train --resume earlier --steps 10 --save 1 --keep 1
    expect_status 0
    expect_list earlier "config latest machine-8.json machine.json metrics.jsonl run.json step-000002 step-000004 step-000006 step-000008 step-000010 tokens"
else
    fail "a changed trainer.json is not noticed: $err"
fi

name="going back is refused while there are later checkpoints"
cp -r run back
before=$(sum back)
for path in back/step-000004 back/../back/step-000004; do
    for more in "" "--out back" "--dry-run" "-n 2"; do
        train --resume $path --steps 8 $more
        expect_status 2
        expect_in "$err" "later checkpoints than step 4: step-000008, step-000006"
        expect_in "$err" "--out OTHER"
        expect_in "$err" "back/set-aside-1"
    done
done
[ "$(sum back)" = "$before" ] || fail "it was changed"
train --resume back/step-000004 --steps 6 --out branch
expect_status 0
[ "$(sum back)" = "$before" ] || fail "a branch changed it"
expect_list branch "config latest machine.json metrics.jsonl run.json step-000006 tokens"

name="going back by force keeps them"
a=$(sum back/step-000006) b=$(sum back/step-000008) c=$(tail -n 4 back/metrics.jsonl)
train --resume back/step-000004 --steps 6 --force -n 2
expect_status 0
expect_in "$err" "step-000008, step-000006"
expect_in "$err" "back/set-aside-1"
expect_list back/set-aside-1 "metrics.jsonl step-000006 step-000008"
[ "$(sum back/set-aside-1/step-000006)" = "$a" ] && [ "$(sum back/set-aside-1/step-000008)" = "$b" ] ||
    fail "what was kept aside was changed"
[ "$(cat back/set-aside-1/metrics.jsonl)" = "$c" ] || fail "$(cat back/set-aside-1/metrics.jsonl)"
[ "$(wc -l <back/metrics.jsonl)" = 6 ] || fail "$(wc -l <back/metrics.jsonl) lines of metrics"
[ "$(readlink back/latest)" = step-000006 ] || fail "$(readlink back/latest)"

name="what a crash leaves is gone on from without a word of force"
cp -r run crash
rm -r crash/step-000008
ln -sfn step-000004 crash/latest # killed between the checkpoint and the link
train --resume crash --steps 8 --save 2
expect_status 0
expect_in "$out" "the run goes on from step 4: 4 lines of later steps are taken out of"
cmp -s crash/step-000008/model.safetensors run/step-000008/model.safetensors || fail "another result"
[ "$(wc -l <crash/metrics.jsonl)" = 8 ] || fail "$(wc -l <crash/metrics.jsonl) lines of metrics"

[ $failures = 0 ] && echo "all passed"
exit $((failures > 0))

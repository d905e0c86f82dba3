# shellcheck shell=bash
# To be sourced: results of every kind, as commands write them, in the folder where we are. Numbers follow a
# sequence of our own, the same on every machine.

# head_of KIND: how a result begins
head_of() {
    cat <<END
{"kind": "$1", "format": 1, "version": "0.1.0", "commit": "0123456789", "command": ["$1", "-n", "8", "--json", "$1.json"],
 "machine": {"started": "2026-01-31T12:00:00Z", "host": "node17", "processor": "AMD EPYC 9654", "gpu": "NVIDIA H100", "cpus": 96,
  "cpus_of_rank_0": 12, "gpus": 8}, "ranks": 8, "ranks_are": "processes", "device": "cuda", "device_name": "NVIDIA H100",
 "settings": {"WEFT_LOG": "warn", "WEFT_ALGO": "auto", "WEFT_CHUNK": "1M"},
END
}

# noise: for awk, a number from 0 to 1 that depends on n alone
noise='function noise(n) { return ((n * 7919 + 104729) % 1000) / 1000 }'

# write_links RANKS: 0 to 3 and 4 to 7 are near each other; one link is slow
write_links() {
    head_of links
    awk -v ranks="$1" "$noise"'
    BEGIN {
        printf "\"pairs\": ["
        for (a = 0; a < ranks; a++) for (b = 0; b < ranks; b++) if (a != b) {
            near = int(a / 4) == int(b / 4)
            slow = a == 2 && b == 5
            gbs = (near ? 335 : 180) * (0.97 + 0.06 * noise(a * 31 + b)) * (slow ? 0.6 : 1)
            printf "%s{\"from\": %d, \"to\": %d, \"link\": \"%s\", \"one_way_gbs\": %.2f, \"both_ways_gbs\": %.2f, " \
                "\"latency_us\": %.2f, \"slow\": %s, \"expected_gbs\": %d}", n++ ? ",\n " : "", a, b, near ? "NV18" : "PCIe SYS", gbs,
                1.8 * gbs, (near ? 2 : 5) + noise(a + b * 17), slow ? "true" : "false", near ? 335 : 180
        }
        printf "],\n\"permutations\": ["
        for (a = 1; a < ranks; a++) printf "%s{\"shift\": %d, \"gbs\": %.1f}", (a > 1 ? ", " : ""), a, 900 + 100 * noise(a)
        printf "],\n\"alltoall\": {\"gbs\": ["
        for (a = 0; a < ranks; a++) printf "%s%.1f", a ? ", " : "", 210 + 20 * noise(a)
        printf "], \"sum_gbs\": 1760.5},\n\"allreduce\": ["
        for (bytes = 1024; bytes <= 67108864; bytes *= 8)
            printf "%s{\"algorithm\": \"ring\", \"bytes\": %d, \"us\": %.2f}, {\"algorithm\": \"tree\", \"bytes\": %d, \"us\": %.2f}",
                (bytes > 1024 ? ", " : ""), bytes, 30 + bytes / 2e5, bytes, 12 + bytes / 1e5
        printf "],\n\"memory\": [{\"where\": \"local\", \"what\": \"copy\", \"gbs\": 2610}, {\"where\": \"peer\", \"what\": \"read\", \"gbs\": 340},"
        print " {\"where\": \"host\", \"what\": \"write\", \"gbs\": 52.5}],"
        print "\"findings\": [{\"text\": \"2 to 5 reaches 60% of what its kind of link gives\"}]}"
    }'
}

write_pairs() {
    head_of pairs
    cat <<'END'
"pairs": [
 {"name": "halo", "group": "one-sided", "bytes": 1024, "baseline": "send/recv", "baseline_us": [10.1, 9.9, 10.0], "wrong": 0,
  "ways": [{"name": "one-sided", "us": [7.0, 7.2, 7.1], "median_us": 7.1, "ratio": 1.41, "low": 1.35, "high": 1.47, "verdict": "faster"}]},
 {"name": "halo", "group": "one-sided", "bytes": 1048576, "baseline": "send/recv", "baseline_us": [210, 205, 207], "wrong": 0,
  "ways": [{"name": "one-sided", "us": [206, 209, 208], "median_us": 208, "ratio": 0.995, "low": 0.97, "high": 1.02, "verdict": "the same"}]},
 {"name": "restless", "group": "one-sided", "bytes": 64, "baseline": "send/recv", "baseline_us": [3, 9, 6], "wrong": 0,
  "ways": [{"name": "put", "us": [4, 8, 6], "median_us": 6, "ratio": 1.1, "low": 0.7, "high": 1.6, "verdict": "noisy"}]},
 {"name": "lookup", "group": "one-sided", "bytes": 4096, "baseline": "send/recv", "baseline_us": [30, 31, 30.5], "wrong": 0,
  "ways": [{"name": "get", "us": [41, 40, 40.5], "median_us": 40.5, "ratio": 0.75, "low": 0.72, "high": 0.79, "verdict": "slower"}]},
 {"name": "schedule", "group": "pipeline", "bytes": 0, "baseline": "GPipe", "baseline_us": [5000, 5100, 5050], "wrong": 0,
  "ways": [{"name": "1F1B", "us": [4900, 4950], "median_us": 4925, "ratio": 1.025, "low": 1.01, "high": 1.04, "verdict": "faster"},
   {"name": "interleaved", "us": [4300, 4350], "median_us": 4325, "ratio": 1.17, "low": 1.12, "high": 1.21, "verdict": "faster"}]}]}
END
}

write_scaling() {
    head_of scaling
    cat <<'END'
"points": [
 {"mode": "weak", "ranks": 1, "plan": "dp 1", "tokens_per_s": 52000, "efficiency": 1, "lost": {"communication": 0}},
 {"mode": "weak", "ranks": 2, "plan": "dp 2", "tokens_per_s": 100900, "efficiency": 0.97, "lost": {"communication": 0.015, "imbalance": 0.01, "rest": 0.005}},
 {"mode": "weak", "ranks": 4, "plan": "dp 4", "tokens_per_s": 193400, "efficiency": 0.93, "lost": {"communication": 0.04, "imbalance": 0.02, "rest": 0.01}},
 {"mode": "weak", "ranks": 8, "plan": "dp 8", "tokens_per_s": 361900, "efficiency": 0.87, "lost": {"communication": 0.08, "imbalance": 0.03, "optimizer": 0.01, "rest": 0.01}},
 {"mode": "strong", "ranks": 1, "plan": "dp 1", "tokens_per_s": 52000, "efficiency": 1, "lost": {"communication": 0}},
 {"mode": "strong", "ranks": 8, "plan": "dp 8", "tokens_per_s": 241300, "efficiency": 0.58, "lost": {"communication": 0.25, "imbalance": 0.05, "optimizer": 0.08, "data": 0.01, "rest": 0.03}},
 {"mode": "strong", "ranks": 8, "plan": "dp 2, tp 2, pp 2", "tokens_per_s": 203000, "efficiency": 0.49, "lost": {"communication": 0.2, "bubble": 0.2, "imbalance": 0.05, "optimizer": 0.03, "rest": 0.03}},
 {"mode": "weak", "ranks": 6, "plan": "tp 6", "other_plan": true, "tokens_per_s": 77700, "efficiency": 0.249, "lost": {"communication": 0.7, "rest": 0.051}}],
"remedies": [
 {"name": "another plan", "options": "--pp 2 --tp 1", "plan": "dp 4, pp 2", "tokens_per_s": 240000, "rounds": [240000], "gain": -0.00596, "communication": 0.1},
 {"name": "larger buckets", "options": "--bucket 100M", "plan": "dp 8", "tokens_per_s": 265000, "rounds": [255000, 265000, 281430], "gain": 0.098, "communication": 0.223},
 {"name": "bf16 gradients", "tokens_per_s": 289000, "gain": 0.197}]}
END
}

write_train() {
    head_of train
    awk "$noise"'BEGIN {
        print "\"model\": \"gpt2\", \"plan\": {\"dp\": 4, \"tp\": 2}, \"steps\": 40, \"tokens_per_s\": 241000, \"mfu\": 0.412, \"step_ms\": ["
        for (i = 0; i < 40; i++) printf "%s%.2f", i ? ", " : "", (i ? 67 : 140) + 3 * noise(i)
        print "],\n\"time\": {\"forward\": 0.02, \"backward\": 0.034, \"communication\": 0.006, \"optimizer\": 0.005, \"data\": 0.0004},"
        print "\"memory\": {\"weights\": 497759232, \"gradients\": 497759232, \"optimizer\": 995518464, \"activations\": 3221225472, \"other\": 104857600},"
        printf "\"loss\": ["
        for (i = 0; i < 40; i++) printf "%s%.3f", i ? ", " : "", 10.9 - 0.02 * i
        print "]}"
    }'
}

write_doctor() {
    head_of doctor
    cat <<'END'
"findings": [
 {"check": "governor", "level": "warning", "what": "the frequency governor is powersave", "evidence": "scaling_governor of 96 CPUs", "cost": "small calls take twice as long", "fix": "cpupower frequency-set -g performance"},
 {"check": "memlock", "level": "ok", "what": "memory can be locked", "evidence": "unlimited", "cost": "", "fix": ""},
 {"check": "pcie", "level": "error", "what": "GPU 3 has 8 of 16 PCIe lanes", "evidence": "current_link_width 8", "cost": "half of the bandwidth to the host", "fix": "reseat the card"},
 {"check": "ib", "level": "ok", "looked": false, "what": "InfiniBand ports are up", "evidence": "there is no InfiniBand here", "cost": "", "fix": ""},
 {"check": "shm", "level": "note", "what": "/dev/shm has 64 GiB", "evidence": "df", "cost": "", "fix": ""}]}
END
}

# write_metrics STEPS
write_metrics() {
    awk -v steps="$1" "$noise"'BEGIN {
        for (i = 1; i <= steps; i++) {
            printf "{\"step\": %d, \"loss\": %.6f, ", i, 2 + 3.5 * exp(-i / (steps / 6)) + 0.3 * noise(i) + (i == int(steps / 2) ? 2 : 0)
            if (i % 50 == 0) printf "\"eval_loss\": %.4f, ", 2.2 + 3.5 * exp(-i / (steps / 6))
            printf "\"lr\": %.8f, \"grad_norm\": %.5f, \"seconds\": 0.2, ", 3e-4 * (i < 50 ? i / 50 : 0.5 + 0.5 * cos(3.14159 * i / steps)), 1 + noise(i * 3)
            printf "\"tokens_per_s\": %.3f, \"mfu\": %.5f, \"comm_share\": %.5f, ", 81000 + 4000 * noise(i * 5), 0.4 + 0.02 * noise(i * 5), 0.05 + 0.03 * noise(i * 7)
            printf "\"exchange_share\": %.5f, \"update_share\": %.5f, \"epoch\": %.4f, \"tokens\": %d, \"memory\": 5368709120}\n", 0.07 + 0.02 * noise(i), 0.06, i / 400, i * 16384
        }
    }'
}

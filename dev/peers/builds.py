"""Builds of train_sink for the checks of this folder, a command run for them, and the
families that are only read."""
import os, subprocess, sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.append(os.path.join(ROOT, "scripts", "lib"))
from jobs import each_once

# families that are only read, and OPT-350m, whose projections are folded into the embedding
READ_ONLY = ("mixtral granitemoe qwen2_moe qwen3_moe qwen3_next qwen3_5 jamba gpt_oss opt_350m olmo "
             "olmoe nanochat ministral3").split()


def read_only(name):
    """Tells whether a case is of such a family: its name, or its name and one word more."""
    return any(name == n or name.startswith(n + "_") for n in READ_ONLY)


def run(*words, **more):
    """Runs a command and returns what it printed; raises with all it said if it fails."""
    r = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    if r.returncode:
        raise RuntimeError(" ".join(str(w) for w in words) + "\n" + r.stdout[-500:] + r.stderr)
    return r.stdout


def binary(switches):
    """Builds the model of these switches for the CPU and returns the path of its program."""
    make = ["make", "-s", "-C", ROOT, "BACKEND=cpu", *switches.split()]
    run(*make, "binary")
    return os.path.join(ROOT, run(*make, "check").strip(), "train_sink")

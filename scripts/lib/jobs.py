"""Builds and training runs, several at once, stoppable and resumable:
what scripts/reproduce and scripts/sweep share.

A run is done when its log.jsonl ends with the `done` event and its key (switches, flags, seed,
data, device, sources of the program) is equal. Such runs are skipped, interrupted ones continue
with --resume, those of another key are moved aside. Ctrl-C and SIGTERM save every run in progress.
Runs that diverge (exit status 3) are results.

`o` is what a script wants done: runs (a directory), label (a directory in it), device,
jobs (runs at once, 0: one on each GPU; more than there are GPUs share them),
threads (of a run on the CPU, 0: the program's choice),
identity (of the data and the tokenizer), source (source_hash(device)).
"""
import ctypes
import fcntl
import functools
import glob
import hashlib
import itertools
import json
import math
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

import runlog
from export import finite, mean
from runlog import die, say as print

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
# the program's flags that name files, and those of one letter
FILES = ("--data", "--tokenizer", "--init")
SHORT = {"-d": "--data", "-o": "--out", "-m": "--model", "-b": "--batch", "-t": "--seq",
         "-n": "--steps"}
# those that may be given more than once
ADDING = "--edit --stream --evict --eps --only --factors".split()
stop = 0                                         # the signal that asked us to stop


def on_signal(number, frame):
    global stop
    stop = stop or number


def listen():
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN:              # nohup
            signal.signal(s, on_signal)


prctl = getattr(ctypes.CDLL(None), "prctl", None)            # Linux


def end_with_parent():
    """A new run gets SIGTERM when this process is gone, by whatever signal."""
    if prctl: prctl(1, signal.SIGTERM)                       # PR_SET_PDEATHSIG


def guarded(main):
    """Runs a script. A reader that went away (| head), or a file that fails, is no traceback."""
    try:
        main()
    except BrokenPipeError:
        os._exit(0)
    except OSError as e:
        die(f"{e.filename}: got '{e.strerror}', wanted a file or directory of ours",
            "ls -ld, df -h", 1)


# ---- what a run depends on -----------------------------------------------------------------------
def source_hash(device):
    """Of what the binary is made from: a commit of other files, or none,
    does not make a run stale, nor do kernels of a GPU make those of a CPU."""
    h = hashlib.sha256()
    folders = ["", *ask_make(["make", "-s", "folders", "CXX=true"]).split()]
    folders = [folder for folder in folders if folder != "cuda" or device == "cuda"]
    for path in sorted(p for folder in folders for end in ("cu", "cuh", "cpp", "h")
                       for p in glob.glob(os.path.join(ROOT, folder, "*." + end))):
        h.update(os.path.relpath(path, ROOT).encode() + open(path, "rb").read())
    return h.hexdigest()[:16]


def split_words(words):
    """What stands before -- and what follows it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1:]


def flag_of(word):
    """The long name of the flag that a word names: -d, --data and --data=X are --data."""
    name = word.partition("=")[0]
    return SHORT.get(name, name)


def each_once(words):
    """The words with every flag once, its last value: the program refuses two."""
    last, part = {}, []
    for i, word in enumerate(words):
        flag = flag_of(word)
        if re.match("--?[a-z]", word):
            part = last[i if flag in ADDING else flag] = []
        part.append(word)
    return [word for part in last.values() for word in part]


def values_of(words, flag):
    """What a command line gives a flag, spelled -d X, --data X or --data=X; the last holds."""
    return [word.partition("=")[2] if "=" in word else after
            for word, after in zip(words, words[1:] + [""]) if flag_of(word) == flag]


def from_here(words):
    """The words of a run with the files of this directory as the project's, where runs are
    started, finds them. What is not in this one, and what is no relative path, is left as it is."""
    if os.path.realpath(".") == ROOT:
        return words
    out, flag = [], ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and flag_of(word) in FILES:
            word = name + "=" + path_from_here(flag_of(word), value)
        elif flag in FILES:
            word = path_from_here(flag, word)
        flag = "" if equals else flag_of(word)
        out.append(word)
    return out


def from_root(path):
    """A relative path of this directory as one of the project's; "" stays."""
    if not path or os.path.isabs(path) or os.path.realpath(".") == ROOT:
        return path
    return os.path.relpath(os.path.realpath(path), ROOT)


def path_from_here(flag, value):
    def there(path):
        is_word = path in ("bb", "bytes", "none")
        return path if is_word or not os.path.exists(path) else from_root(path)

    if flag != "--data" or os.path.exists(value):
        return there(value)
    parts = [(source_name(part), part) for part in value.split(",")]     # A:3,B:1
    return ",".join(there(name) + part[len(name):] for name, part in parts)


# what is said of a run, not to it
BEFORE = dict.fromkeys("--report --dry-run --jobs --latex --markdown --spread --sort".split(),
                       "put it before --")


def check_extra(words, ours):
    """What follows -- sets nothing that the script sets itself: `ours` are those flags,
    each with what to type instead."""
    ours = {**BEFORE, **ours}
    for word in words:
        if flag_of(word) in ours:
            die(f"{word.partition('=')[0]}: got it after --, wanted it before, or left to the "
                "script", ours[flag_of(word)])


def files_named(words):
    """(data, tokenizer, model to begin with) of the words of a run, as the program takes them."""
    return ((["bb"] + values_of(words, "--data"))[-1],
            *[([""] + values_of(words, flag))[-1] for flag in ("--tokenizer", "--init")])


def identity(data, tokenizer, init=""):
    """The contents of what a run reads."""
    name = data_identity(data)
    name += f", tokenizer {tokenizer_identity(tokenizer)}" if tokenizer else ""
    return name + (f", init {model_identity(init)}" if init else "")


def sources(data):
    """(name, path) of each part of -d A:3,B:1 without its weight, as the program finds it:
    None of one that is not there."""
    found = []
    for part in data.split(","):
        name = source_name(part)
        found.append((name, place(name)))
    return found


def source_name(part):
    """A or A:3 without its weight."""
    name, _, weight = part.rpartition(":")
    weighted = re.fullmatch(r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[+-]?[0-9]+)?", weight, re.I)
    return name if weighted and not place(part) else part


def place(name):
    """Where data of this name are: here, in data/, or None."""
    paths = (name, "data/" + name) if name else ()
    return next((p for p in paths if os.path.exists(p)), None)


def data_identity(data):
    """bb, or name, size and a hash, of every part of a mixture: of the whole of a file; in
    a directory of shards of the first MiB of each and of what the manifest counts, but not
    of where and when its sources lay: the same shards are the same data on every machine."""
    if data == "bb":
        return "bb"
    return " + ".join(source_identity(*source) for source in sources(data))


def source_identity(name, path):
    if not path:
        return "missing"
    name = os.path.basename(os.path.normpath(name))
    if os.path.isfile(path):
        return contents(name, [path])
    return contents(name, sorted(glob.glob(f"{glob.escape(path)}/*.bin")), 1,
                    manifest_counts(f"{path}/manifest.json"))


def tokenizer_file(given):
    """The file that --tokenizer names: in a directory the one that the program would take.
    None if it is not there."""
    inside = [f"{given}/{name}" for name in ("tokenizer.json", "vocab.json")]
    inside += sorted(glob.glob(f"{glob.escape(given)}/*.gguf"))
    files = inside if os.path.isdir(given) else [given]
    return next((f for f in files if os.path.exists(f)), None)


def tokenizer_identity(given):
    """bytes, or name, size and a hash of the file and of those that are read beside it; of a GGUF
    file, whose words come before its weights, of the first 64 MiB."""
    if given == "bytes":
        return "bytes"
    path = tokenizer_file(given)
    if not path:
        return "missing"
    name = os.path.basename(path)
    if name.endswith(".gguf"):
        return contents(name, [path], 64)
    names = ["merges.txt"] * (name == "vocab.json")
    names += ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
    beside = [os.path.join(os.path.dirname(path), n) for n in names]
    return contents(name, [path] + [f for f in beside if os.path.exists(f)])


def newest_in(run):
    """The newest checkpoint of a run, as the program takes it; what is none is left as it is."""
    if not os.path.isdir(run) or os.path.exists(f"{run}/config.json"):
        return run
    steps = [int(m[1]) for name in os.listdir(run) for m in [re.fullmatch("step_([0-9]+)", name)]
             if m and os.path.exists(f"{run}/{name}/state.json")]
    return os.path.join(run, f"step_{max(steps)}") if steps else run


def model_identity(given):
    """Name, size and a hash of a GGUF file, or of a directory's config, weights and tokenizer: of
    a run, those of its newest checkpoint."""
    given = newest_in(given)
    files = [given]
    if os.path.isdir(given):
        files = [f for f in sorted(glob.glob(f"{glob.escape(given)}/*"))
                 if re.search("[.](safetensors|gguf)$|/(config|tokenizer|vocab|merges)[^/]*$", f)
                 and os.path.basename(f) != "optimizer.safetensors"]
    name = os.path.basename(os.path.normpath(given))
    return contents(name, files) if os.path.exists(given) else "missing"


def contents(name, files, most=None, seen=b""):
    """The name, the size of the files, and a hash: of `seen` and of so many MiB of each, or all."""
    h = hashlib.sha256(seen)
    for path in files:
        with open(path, "rb") as f:
            for piece in itertools.islice(iter(lambda: f.read(1 << 20), b""), most):
                h.update(piece)
    size = sum(os.path.getsize(f) for f in files)
    return f"{name} {size} bytes {h.hexdigest()[:16]}"


def need_files(data, tokenizer, init, hint):
    """An error for the first of a run's files that is not there."""
    for name, path in sources(data) if data != "bb" else []:
        if name == "bb":
            die(f"-d: got bb in {runlog.shown(data)}, wanted it alone", "-d bb")
        if not path:
            got = f"neither {name} nor data/{name}" if name else f"no name in {runlog.shown(data)}"
            die(f"-d: got {got}, wanted text or shards", hint)
    if tokenizer not in ("", "bytes") and not tokenizer_file(tokenizer):
        die(f"--tokenizer: got no tokenizer in {runlog.shown(tokenizer)}, wanted tokenizer.json, "
            "or a directory with one", "leave it out: text is bytes then")
    if init and not os.path.exists(init):
        die(f"--init: got {runlog.shown(init)}, wanted a checkpoint: no such file or directory",
            "ls runs/*/")


def manifest_counts(path):
    """The manifest of shards without its paths and times, as bytes. One that is not there, or is
    damaged, counts nothing: the program refuses it."""
    counts = {k: v for k, v in runlog.object_in(path).items() if k not in ("made", "tokenizer")}
    return json.dumps(counts, sort_keys=True).encode() if counts else b""


def whole(flag, text, low, high):
    """A whole number of the command line."""
    if not re.fullmatch("[0-9]{1,18}", text) or not low <= int(text) <= high:
        die(f"{flag}: got {runlog.shown(text)}, wanted a whole number from {low} to {high:,}",
            "--help")
    return int(text)


def run_name(make, pairs):
    """The name of a run's directory: ATTN=sigmoid,lr=0.001"""
    words = make.split() + [flag.lstrip("-") + f"={value}" * (value != "") for flag, value in pairs]
    return re.sub(r"[^A-Za-z0-9_=.,+-]", "_", ",".join(words)) or "default"


# ---- runs ----------------------------------------------------------------------------------------
class Run:
    """One training run: a row's switches (make) and words with a seed.
    row.id is what a person calls it, row.first the name of its directory."""
    def __init__(self, row, seed, o):
        self.name, self.seed, self.make, self.words = row.id, seed, row.make, row.words
        place, name = os.path.join(o.runs, o.label), f"{row.first}-seed{seed}"
        self.dir, self.lock = f"{place}/{name}", f"{place}/.lock-{name}"
        self.key = {"switches": row.make, "flags": " ".join(row.words), "seed": seed,
                    "data": getattr(row, "identity", None) or o.identity,
                    "source": o.source, "device": o.device}

    def stored(self):
        stored = runlog.object_in(f"{self.dir}/reproduce.json")
        return stored if runlog.is_number(stored.get("seconds", 0)) else {}

    def log(self):
        """(config, evals, last event, last step) of log.jsonl; a torn last line is what
        a killed run leaves."""
        if not self.has_line():
            return None, [], None, 0
        again = f"rm -r {shlex.quote(self.dir)}, then the same command again"
        lines, torn = runlog.read_log(f"{self.dir}/log.jsonl", again, training=False)
        objects = [o for _, o in lines]
        steps = [o["step"] for o in objects if runlog.is_count(o.get("step"))]
        return (objects[0], [o for o in objects if o["event"] == "eval"],
                None if torn else objects[-1]["event"], [0, *steps][-1])

    def state(self):
        """done, failed (diverged), partial, none, or other (a run of another
        key is in its place)."""
        if not os.path.exists(f"{self.dir}/log.jsonl"):
            return "none"
        stored = self.stored()
        if stored.get("key") != self.key:
            return "other"
        if stored.get("exit") == 3:
            return "failed"
        return "done" if self.log()[2] == "done" else "partial"

    def mark(self, exit=None, seconds=0.0):
        old = self.stored()
        if old.get("key") == self.key: seconds += old.get("seconds", 0)
        so_far = {"key": self.key, "exit": exit, "seconds": round(seconds, 1)}
        runlog.write_whole(f"{self.dir}/reproduce.json", json.dumps(so_far))

    def aside(self):
        n = 1
        while os.path.exists(f"{self.dir}.old{n}"):
            n += 1
        return f"{self.dir}.old{n}"

    def move_aside(self):
        aside = self.aside()
        os.rename(self.dir, aside)
        print(f"{self.dir} holds a run of other switches, flags, data or sources: now {aside}")

    def begun(self):
        """Is there a checkpoint, or a log with a line, to go on with?"""
        return glob.glob(glob.escape(self.dir) + "/step_*/state.json") or self.has_line()

    def has_line(self):
        path = f"{self.dir}/log.jsonl"
        return os.path.exists(path) and "\n" in runlog.read_text(path, "ls -l " + path)

    def all_words(self, resume=True):
        return (each_once(self.words) + ["--seed", str(self.seed)]
                + ["--resume"] * bool(resume and self.begun())
                + ["-o", self.dir])


def lock(path, wait=False):
    """An open file that holds the lock, or None. Children inherit it:
    a run keeps its lock if we are killed."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        f = open(path, "a", opener=lambda p, how: os.open(p, how | os.O_NOFOLLOW, 0o666))
    except OSError as e:
        die(f"{path}: {e.strerror}, wanted a file to lock",
            f"move {os.path.dirname(path)} elsewhere, or make it yours")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return f
    except OSError:
        f.close()
        return None


# ---- builds --------------------------------------------------------------------------------------
@functools.lru_cache(None)
def clean():
    """The environment without switches, which the Makefile would take from it."""
    bare = {"PATH": os.environ.get("PATH", os.defpath)}
    names = ask_make(["make", "-s", "switches"], bare).split() + "MAKEFLAGS MFLAGS MAKELEVEL PRECISION BACKEND".split()
    return {k: v for k, v in os.environ.items() if k not in names}


def make_words(make, device):
    return ["make", "-s"] + make.split() + ([f"BACKEND={device}"] if device else [])


def ask_make(words, env=None):
    """What a make prints; why it failed, where it did, ends the script."""
    r = subprocess.run(words, cwd=ROOT, env=env or clean(), capture_output=True, text=True,
                       errors="replace")
    if r.returncode:
        message = re.sub(r"^[a-zA-Z/.]*:\d+: \*\*\* |\.  Stop\.$", "", r.stderr.strip())
        die(f"{shlex.join(words)}: {message or how_ended(r.returncode)}",
            "make help lists the switches" if message else "the same command again")
    return r.stdout.strip()


def how_ended(code):
    return f"got signal {-code}, wanted it to end by itself" if code < 0 else f"exit status {code}"


def build_dir(make, device):
    # only the name is asked for: --dry-run works anywhere
    nvcc = ["NVCC=nvcc"] if device == "cuda" else []
    return ask_make(make_words(make, device) + nvcc + ["check"])


def build_words(make, device):
    """The binary alone: ./train_sink, which somebody may be using, stays where it points."""
    return make_words(make, device) + ["binary"]


def build_stamp(directory, o):
    """What build_all writes beside a binary; any other build of the binary differs in time."""
    binary = f"{ROOT}/{directory}/train_sink"
    if not os.path.exists(binary):
        return None
    return f"{o.source} {os.stat(binary).st_mtime_ns}"


def need_compiler(device):
    tool = "nvcc" if device == "cuda" else (shlex.split(os.environ.get("CXX", "g++")) or ["g++"])[0]
    hint = ("apt install g++ make" if device != "cuda"
            else "install the CUDA toolkit, or --device cpu")
    for t in ("make", tool):
        if not shutil.which(t):
            die(f"{t}: got no such program in PATH, wanted a compiler", hint)


def build_all(makes, o):
    """Each binary once; a binary of the same sources is left as it is.
    Returns make words -> binary."""
    need_compiler(o.device)
    held = lock(f"{ROOT}/build/.reproduce.lock", wait=True)
    directories = {m: build_dir(m, o.device) for m in makes}
    todo = [m for m in makes if not is_fresh(directories[m], o)]
    if todo:
        print(f"building {len(todo)} of {len(makes)} binaries: "
              f"{' '.join(directories[m] for m in todo)}", flush=True)
    running = []
    while todo or running:
        while todo and len(running) < (o.jobs or os.cpu_count() or 1) and not stop:
            m = todo.pop(0)
            p = subprocess.Popen(build_words(m, o.device), cwd=ROOT, env=clean(), text=True,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                 start_new_session=True, preexec_fn=end_with_parent)
            running.append((m, p))
        m, p = running.pop(0)
        build_wait(m, p, running, directories[m], o)
    held.close()
    return {m: f"{ROOT}/{d}/train_sink" for m, d in directories.items()}


def is_fresh(directory, o):
    try:
        with open(f"{ROOT}/{directory}/reproduce.txt") as f:
            return f.read() == build_stamp(directory, o)
    except OSError:
        return False


def build_wait(m, p, others, directory, o):
    while p.poll() is None and not stop:
        time.sleep(0.05)
    if stop:
        for q in [p] + [q for _, q in others]:
            if q.poll() is None:
                os.killpg(q.pid, signal.SIGTERM)
        sys.exit(128 + stop)
    words = shlex.join(build_words(m, o.device))
    if p.returncode:
        die(f"{words}: {p.stderr.read().strip()[-600:] or how_ended(p.returncode)}", words)
    with open(f"{ROOT}/{directory}/reproduce.txt", "w") as f:
        f.write(build_stamp(directory, o))


# ---- training ------------------------------------------------------------------------------------
def slots_of(o):
    """Where runs go: (what CUDA_VISIBLE_DEVICES says, a name for the lock), or (None, None)
    for a share of the CPU."""
    if o.device != "cuda":
        # other processes of this machine at these runs count, and what a killed one has left
        path = os.path.join(o.runs, o.label, f".slot-{os.uname().nodename}-")
        return [(None, path + str(i)) for i in range(o.jobs)]
    uuids = []                               # of those that this job may see: 0 differs by job
    if shutil.which("nvidia-smi"):
        r = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        uuids = re.findall(r"UUID: ([^)]+)", r.stdout)
    seen = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
    seen = seen or [str(i) for i in range(len(uuids))]
    if not seen:
        die("--device cuda: got no GPU from nvidia-smi, wanted one",
            "scripts/reproduce .. --scale laptop")
    uuid = lambda d: uuids[int(d)] if d.isdigit() and int(d) < len(uuids) else d
    turns = [seen[i % len(seen)] for i in range(o.jobs or len(seen))]
    # a folder for each user: nobody's file is in another's way
    return [(d, f"/tmp/train_sink-{os.getuid()}/gpu-{uuid(d)}.lock") for d in turns]


# ---- runs that share a GPU -----------------------------------------------------------------------
# A small model leaves most of a GPU idle. By NVIDIA's MPS the kernels of several runs compute at
# the same time; without it the GPU gives each run a slice of time.
def mps_running():
    """A server that somebody has started serves our runs too, and is not ours to stop."""
    given = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return os.path.exists(f"{given}/control")


def mps_control(directory, *words, **more):
    """Runs nvidia-cuda-mps-control and returns why it failed; "" if it did not."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}   # all GPUs
    env.update(CUDA_MPS_PIPE_DIRECTORY=directory, CUDA_MPS_LOG_DIRECTORY=directory)
    try:
        r = subprocess.run(["nvidia-cuda-mps-control", *words], env=env, capture_output=True,
                           text=True, errors="replace", timeout=20, **more)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "no nvidia-cuda-mps-control" if isinstance(error, OSError) else "it hangs"
    said = (r.stderr + r.stdout).strip().split("\n")[0][:100]
    return (said or f"exit status {r.returncode}") if r.returncode else ""


def mps_begin(slots):
    """Starts a server if two runs share a GPU. Returns its directory, or None."""
    names = [name for gpu, name in slots if gpu is not None]
    if len(names) == len(set(names)):
        return None
    most = f"up to {-(-len(names) // len(set(names)))} runs on a GPU: "
    if mps_running():
        print(f"{most}by the MPS server that runs here", flush=True)
        return None
    directory = tempfile.mkdtemp(prefix="train_sink-mps-")
    why = mps_control(directory, "-d")
    print(most + (f"they take turns, as there is no MPS ({why})" if why else "by MPS"), flush=True)
    if not why:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    return None


def mps_end(directory):
    """Stops the server that mps_begin started."""
    if directory:
        mps_control(directory, input="quit\n")
        shutil.rmtree(directory, ignore_errors=True)


class Pool:
    """The runs in progress. On one GPU there are never more than --jobs asks for, and never those
    of another process."""
    def __init__(self, runs, binaries, o):
        self.todo, self.binaries, self.o = list(runs), binaries, o
        self.free, self.running, self.begin = slots_of(o), [], time.time()
        self.total, self.ended, self.broken, self.waiting = len(runs), 0, None, False
        self.mps = mps_begin(self.free[:self.total])

    def take_slot(self):
        """The lock of the next free GPU, or share of the CPU, or None where another process has it."""
        gpu, name = self.free[0]
        same = next((job[3][0] for job in self.running if job[2][1] == name), None)
        held = os.fdopen(os.dup(same.fileno())) if same else lock(name)
        if held:
            return [held]
        if not self.waiting:
            what = f"one of {len(self.free)} slots (--jobs)" if gpu is None else f"GPU {gpu}"
            print(f"waiting for {what}, which another process uses", flush=True)
        self.waiting = True
        self.free.append(self.free.pop(0))
        return None

    def start_next(self):
        """Starts a run, or leaves one out. False where no slot can be had."""
        held = self.take_slot()
        if held is None:
            return False
        run = self.todo.pop(0)
        mine = lock(run.lock)
        state = run.state() if mine else "another's"
        if not mine:
            print(f"{run.dir}: another process is at it; left to that one")
        if state in ("another's", "done", "failed"):  # done by another process in the meantime
            for h in held + [mine] * bool(mine):
                h.close()
            return True
        if state == "other":
            run.move_aside()
            state = "none"
        self.start(run, held + [mine], state)
        return True

    def start(self, run, held, state):
        os.makedirs(run.dir, exist_ok=True)
        run.mark()
        slot, env = self.free.pop(0), dict(clean())
        if slot[0] is not None:
            env["CUDA_VISIBLE_DEVICES"] = slot[0]
        if self.mps:
            env["CUDA_MPS_PIPE_DIRECTORY"] = env["CUDA_MPS_LOG_DIRECTORY"] = self.mps
        if self.o.threads and self.o.device != "cuda":
            env["OMP_NUM_THREADS"] = str(self.o.threads)
        with open(f"{run.dir}/output.txt", "a") as out:
            p = subprocess.Popen([self.binaries[run.make]] + run.all_words(), env=env, stdout=out,
                                 stderr=out,
                                 start_new_session=True, preexec_fn=end_with_parent,
                                 pass_fds=[h.fileno() for h in held])
        self.running.append((run, p, slot, held, time.time()))
        goes_on = ", goes on" if state == "partial" else ""
        print(f"[{self.total - len(self.todo)}/{self.total}] "
              f"{run.name} seed {run.seed}{goes_on}{self.left()}",
              flush=True)

    def left(self):
        if not self.ended:
            return ""
        hours = (time.time() - self.begin) * (self.total - self.ended) / self.ended / 3600
        return f", {duration(hours)} left"

    def collect(self):
        """What has ended."""
        for job in [j for j in self.running if j[1].poll() is not None]:
            self.running.remove(job)
            run, p, slot, held, start = job
            self.ended += 1
            self.free.append(slot)
            run.mark(3 if p.returncode == 3 else None, time.time() - start)
            for h in held:
                h.close()
            if p.returncode == 3:
                print(f"      {run.name} seed {run.seed} failed: its loss is not finite",
                      flush=True)
            elif p.returncode and not stop:
                self.broken = self.broken or (run, p.returncode)

    def save(self):
        if self.running:
            print("stopping: every run saves itself first", flush=True)
        self.end()

    def end(self):
        for _, p, *_ in self.running:
            p.terminate()
        for _, p, *_ in self.running:
            p.wait()

    def verdict(self):
        """Ends the program where a run could not be trained, or a signal came."""
        if self.broken:
            run, code = self.broken
            path = f"{run.dir}/output.txt"
            tail = [l for l in runlog.read_text(path, "").split("\n") if l][-2:]
            if tail and tail[0].startswith("error: "):
                sys.exit(print("\n".join(tail), file=sys.stderr) or code)
            die(f"{run.dir}: {how_ended(code)}: {' '.join(tail)[:300]}",
                "the same command goes on where it stopped", 1)
        if stop:
            print(f"stopped; {len(self.todo)} runs not started. The same command goes on.",
                  flush=True)
            sys.exit(128 + stop)


def run_all(runs, binaries, o):
    """Trains what is not done."""
    pool = Pool(runs, binaries, o)
    try:
        run_pool(pool)
    finally:                                     # were it by an error of ours: no run is left alone
        pool.end()
        mps_end(pool.mps)
    pool.verdict()
    print(f"{pool.total} runs in {time.time() - pool.begin:.0f} s\n", flush=True)


def run_pool(pool):
    while pool.todo or pool.running:
        while pool.todo and pool.free and not stop and not pool.broken:
            if not pool.start_next():
                break
        if stop:
            pool.save()
        time.sleep(0.05)
        pool.collect()
        if (stop or pool.broken) and not pool.running:
            break


def train(runs, o, check=lambda todo, binaries: None):
    """Builds and trains what is not done; check is called between."""
    listen()
    todo = [r for r in runs if r.state() not in ("done", "failed")]
    print(f"{len(runs)} runs, {len(runs) - len(todo)} of them done", flush=True)
    if todo:
        binaries = build_all(list(dict.fromkeys(r.make for r in todo)), o)
        check(todo, binaries)
        run_all(todo, binaries, o)


# ---- tables on a terminal ------------------------------------------------------------------------
def dry_run(runs, o):
    """The make lines and the run lines."""
    where = {m: build_dir(m, o.device) for m in dict.fromkeys(r.make for r in runs)}
    for m in where:
        print(shlex.join(build_words(m, o.device)))
    for r in runs:
        blocked = r.state() == "other"
        if blocked:
            print(shlex.join(["mv", r.dir, r.aside()]))
        resume = os.path.isdir(r.dir) and not blocked
        print(shlex.join([where[r.make] + "/train_sink"] + r.all_words(resume)))


def duration(hours):
    minutes = hours * 60
    if hours >= 1: return f"{hours:,.1f} h"
    return f"{minutes:.0f} min" if minutes >= 1 else f"{minutes * 60:.0f} s"


def terminal_width():
    """Columns of the terminal or of COLUMNS; a file has room."""
    return shutil.get_terminal_size((10000, 24)).columns


# of Student's distribution, 97.5 % lie below it: by degrees of freedom, from 1
T_BELOW = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
SPREADS = {"range": "(smallest-largest)", "sd": "(smallest-largest; standard deviation)",
           "t": "+- half of its 95 % interval (Student's t)"}
shown_spread = "range"                           # --spread


def t_below(freedom):
    """T_BELOW, beyond its end by the first terms of a series (Fisher and Cornish 1960)."""
    if freedom <= len(T_BELOW): return T_BELOW[freedom - 1]
    z, n = 1.959964, freedom
    return z + (z ** 3 + z) / (4 * n) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * n * n)


def spread(values, form="{:.1f}"):
    """mean (smallest-largest); or with the standard deviation, too; or mean +- the half of its
    95 % interval."""
    x = finite(values)
    if not x:
        return "-"
    middle = form.format(mean(x))
    if len(x) == 1 or max(x) == min(x): return middle
    sd = statistics.stdev(x)
    half = t_below(len(x) - 1) * sd / math.sqrt(len(x))
    if shown_spread == "t": return f"{middle} +- {form.format(half)}"
    more = f"; sd {form.format(sd)}" if shown_spread == "sd" else ""
    return f"{middle} ({form.format(min(x))}-{form.format(max(x))}{more})"


def print_text(text, indent="", hang=""):
    print(textwrap.fill(text, max(40, min(120, terminal_width())), initial_indent=indent,
                        subsequent_indent=hang, break_long_words=False, break_on_hyphens=False))


def print_table(rows):
    """Rows of texts, the first the head, in columns. Where the terminal is narrow the head's words
    and the ranges of the cells go below each other; what still has no room goes into a second table
    with the same first column."""
    room = terminal_width()
    if width_of(rows) > room:
        note = lambda text: "\n".join(textwrap.wrap(text, 28, break_on_hyphens=False))
        rows = [[c.replace(" ", "\n") for c in rows[0]]] + \
               [[c.replace(" (", "\n(") for c in r[:-1]] + [note(r[-1])] for r in rows[1:]]
    for i, columns in enumerate(blocks(rows, room)):
        print("" if i == 0 else "\n", end="")
        print_block([[row[c] for c in columns] for row in rows])


def print_notes(runs):
    """The notes of runs, name -> directories, each once and with those that printed it."""
    found = {}
    for name, directories in runs.items():
        for text in itertools.chain(*map(runlog.said_in, directories)):
            found.setdefault(text, {})[name] = True
    for text, names in found.items():
        whose = ", ".join(names) if len(names) < len(runs) else "all runs"
        print()
        print_text(f"note   {whose}: {text}", "", " " * 7)


def check_form(s):
    """Takes --spread, --latex and --markdown of a script that prints tables."""
    global shown_spread
    if s.latex and s.markdown:
        die("--latex --markdown: got both, wanted one", "leave one out")
    if s.spread not in SPREADS:
        die(f"--spread: got {runlog.shown(s.spread)}, wanted one of {' '.join(SPREADS)}",
            "--spread sd")
    shown_spread = s.spread


def print_form(rows, s, about):
    """The same in the form that was asked for, below what is said of it."""
    if s.latex:
        print(f"% {about}")
        return print_latex(rows)
    if s.markdown: print(about)
    else: print_text(about)
    print()
    (print_markdown if s.markdown else print_table)(rows)


def print_markdown(rows):
    """The same as a Markdown table."""
    for i, cells in enumerate(rows):
        print("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
        if i == 0: print("|" + "---|" * len(cells))


def print_latex(rows):
    """The same as a LaTeX table, of the package booktabs."""
    escaped = str.maketrans({c: "\\" + c for c in "_%&#$"} | {"|": "$|$"})
    line = lambda cells: " & ".join(c.translate(escaped).replace("+-", "$\\pm$") for c in cells)
    print("\\begin{tabular}{l" + "r" * (len(rows[0]) - 1) + "}\n\\toprule")
    for i, cells in enumerate(rows):
        print(line(cells) + " \\\\" + "\n\\midrule" * (i == 0))
    print("\\bottomrule\n\\end{tabular}")


def blocks(rows, room):
    """The columns of each table: as many as there is room for, and always the first."""
    found, now = [], [0]
    for c in range(1, len(rows[0])):
        if len(now) > 1 and width_of([[r[k] for k in now + [c]] for r in rows]) > room:
            found, now = found + [now], [0]
        now = now + [c]
    return found + [now]


def column_widths(rows):
    return [max(len(line) for cell in column for line in cell.split("\n"))
            for column in zip(*rows)]


def width_of(rows):
    widths = column_widths(rows)
    return sum(widths) + 2 * (len(widths) - 1)


def print_block(rows):
    widths = column_widths(rows)
    for row in rows:
        for line in itertools.zip_longest(*(c.split("\n") for c in row), fillvalue=""):
            print("  ".join(map(str.ljust, line, widths)).rstrip())

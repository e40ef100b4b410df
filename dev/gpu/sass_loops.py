#!/usr/bin/env python3
"""sass_loops.py -- what a warp executes for one tile, counted in the machine code of the attention
kernels. No GPU needed.

    cuobjdump -sass x.cubin | python3 dev/gpu/sass_loops.py TILES PTXAS > counts.tsv
                                                (dev/gpu/sass.sh does all of it)
    python3 dev/gpu/sass_loops.py --check dev/gpu/budgets.tsv counts.tsv
                                                `N passed, M failed`
    python3 dev/gpu/sass_loops.py --update dev/gpu/budgets.tsv counts.tsv
                                                writes today's figures into the table

A main loop is a loop with HMMA (tensor core) instructions and no such loop inside it. Hopper's own,
HGMMA, which four warps execute together, count as HMMA, and its kernels as hopper_forward,
hopper_dkv, hopper_dq. Through
its body there are many ways: with a mask and without, with a tile still to load and without,
by a path for whole tiles and by one for ragged ones. The way that is counted has the most HMMA,
of those the most LDGSTS (cp.async), of those the most MUFU (exp and the like),
of those the fewest instructions: a tile with no mask in the middle of a sequence,
which is what nearly all tiles are. A loop inside it that only copies is counted as often
as it runs (TILES says how many 16-byte pieces there are); any other loop inside it once.
If a kernel has several main loops, the counted one is that with the fewest instructions per HMMA;
of the kernel of dq and dk there is one for each, and that of dk transposes less (LDSM .MT88). ldg
and stg are loads and stores of 128 bytes a warp: one of 4 bytes per lane is one, one of 16 is four.
gap is the longest run of instructions without an HMMA among them: in it the tensor cores have nothing
to do for this warp.
BSSY and CALL (a branch that makes the lanes of a warp go one after the other, and a slow path such
as that of a division) are counted everywhere in the main loops, not only on the way.
Hopper's products go on while the warp does other work, until it waits (WARPGROUP.DEPBAR): in forward
and dkv first for the scores, then for the sums. hmma_late are those begun after the first wait,
mufu_beside the MUFU between the two, while tensor cores work on the sums, mufu_late all others.
"""
import re
import sys

MARGIN = 1.02                                    # a figure may rise by 2% before the check fails
KEYS = ("attn", "kernel", "HS", "arch")
FIGURES = ("registers", "spill", "per_hmma", "branches", "hmma", "instructions", "ldsm", "mufu",
           "ldgsts", "ldg", "stg", "gap", "hmma_late", "mufu_beside", "mufu_late")
TENSOR = ("HMMA", "HGMMA")
# those that the check holds: the first may rise by MARGIN, the next not at all, the last not fall
HELD_ABOUT = ("registers", "per_hmma", "gap")
HELD_BELOW = ("spill", "branches", "hmma_late", "mufu_late")
HELD_ABOVE = ("mufu_beside",)
HELD = HELD_ABOUT + HELD_BELOW + HELD_ABOVE


def name_of(symbol):
    """_ZN4cuda28attention_forward_mma_kernelI12Attn_softmax...Li96E... -> (softmax, forward, 96),
    or None. The kernel that sums up dq and dk has no ATTN: (any, dqk, 96)"""
    kernel = re.search(r"_ZN4cuda\d+attention_(\w+?)_(w?g?mma)_kernel", symbol)
    if not kernel:
        return None
    attn = next((m.group(2)[5:int(m.group(1))] for m in re.finditer(r"(\d+)(Attn_\w+)", symbol)),
                "any")
    heads = re.search(r"Li(\d+)E", symbol)
    hopper = "hopper_" if kernel.group(2) == "wgmma" else ""
    return (attn, hopper + kernel.group(1), heads.group(1)) if heads else None


def jump(address, text):
    """For sm_80 ptxas writes the end of a loop as a CALL over the next instruction,
    the branch back. Nothing returns: a jump"""
    over = re.search(r"\bCALL\.REL\.NOINC 0x0*%x$" % (address + 0x20), text)
    return text.replace("CALL.REL.NOINC", "BRA") if over else text


def functions(lines):
    """yields (architecture, symbol, [(address, instruction)])"""
    arch = symbol = None
    code = []
    for line in lines:
        if "code for sm_" in line:
            arch = line.split()[-1].rstrip("a")          # sm_90a: sm_90 with Hopper's own
        elif "Function :" in line:
            if symbol and code:
                yield arch, symbol, code
            symbol, code = line.split()[-1], []
        else:
            m = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?);", line)
            if m:
                code.append((int(m.group(1), 16), jump(int(m.group(1), 16), m.group(2).strip())))
    if symbol and code:
        yield arch, symbol, code


class Graph:
    """basic blocks: .code[b] the instructions of block b, .next[b] where it may go"""

    def __init__(self, code):
        at = {address: i for i, (address, _) in enumerate(code)}
        self.target = {}
        cuts = {0}
        for i, (_, text) in enumerate(code):
            op = opcode(text)
            if op in ("BRA", "EXIT", "RET", "JMP", "BRX", "BREAK"):
                cuts.add(i + 1)
            if op in ("BRA", "JMP"):
                m = re.search(r"0x([0-9a-f]+)\s*$", text)
                if m and int(m.group(1), 16) in at:
                    self.target[i] = at[int(m.group(1), 16)]
                    cuts.add(self.target[i])
        starts = sorted(c for c in cuts if c < len(code))
        number = {s: b for b, s in enumerate(starts)}
        self.code, self.next = [], []
        for b, s in enumerate(starts):
            end = starts[b + 1] if b + 1 < len(starts) else len(code)
            self.code.append([text for _, text in code[s:end]])
            last, text = end - 1, code[end - 1][1]
            falls = end < len(code) and not (opcode(text) in ("BRA", "EXIT", "RET", "JMP", "BRX")
                                             and not text.startswith("@")
                                             and not re.search(r"\bU?P\d,", text))
            out = {number[self.target[last]]} if last in self.target else set()
            self.next.append(out | ({b + 1} if falls and b + 1 < len(starts) else set()))
        self.before = [set() for _ in self.code]
        for b, out in enumerate(self.next):
            for n in out:
                self.before[n].add(b)

    def loops(self):
        """{header: blocks} of the natural loops; back edges by depth-first search"""
        state, back, stack = {0: 1}, [], [(0, iter(sorted(self.next[0])))]
        while stack:
            b, out = stack[-1]
            n = next(out, None)
            if n is None:
                state[b] = 2
                stack.pop()
            elif n not in state:
                state[n] = 1
                stack.append((n, iter(sorted(self.next[n]))))
            elif state[n] == 1:
                back.append((b, n))
        found = {}
        for tail, header in back:
            blocks = found.setdefault(header, {header})
            todo = [tail]
            while todo:
                b = todo.pop()
                if b not in blocks:
                    blocks.add(b)
                    todo += self.before[b]
        self.back = set(back)
        return found


def opcode(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0].split(".")[0]


def count(block, *ops):
    return sum(opcode(t) in ops for t in block)


def lines(block, op):
    """accesses of 128 bytes a warp"""
    bits = [re.search(r"\.(64|128)\b", t.split()[1] if t.startswith("@") else t.split()[0])
            for t in block if opcode(t) == op]
    return sum(int(b.group(1)) // 32 if b else 1 for b in bits)


def walk(graph, header, blocks, loops, pieces):
    """the way through one main loop: (hmma, ldgsts, mufu, instructions, ldsm, ldg, stg,
    LDSM that transpose), and its instructions"""
    times = {b: 1 for b in blocks}
    for h, inner in loops.items():                # loops that copy run several times
        copies = sum(count(graph.code[b], "LDGSTS") for b in inner)
        if h != header and inner < blocks and copies and not any(count(graph.code[b], *TENSOR)
                                                                 for b in inner):
            for b in inner:
                times[b] = max(times[b], -(-pieces // (128 * copies)))
    order, seen = [], set()

    def visit(b):
        stack = [(b, iter(sorted(graph.next[b])))]
        seen.add(b)
        while stack:
            b, out = stack[-1]
            n = next((n for n in out if n in blocks and (b, n) not in graph.back and n not in seen),
                     None)
            if n is None:
                order.append(b)
                stack.pop()
            else:
                seen.add(n)
                stack.append((n, iter(sorted(graph.next[n]))))
    visit(header)
    best, after = {}, {}
    for b in order:                               # from the ends to the header
        code, t = graph.code[b], times[b]
        own = (count(code, *TENSOR), t * count(code, "LDGSTS"), t * count(code, "MUFU"),
               -t * len(code), t * count(code, "LDSM"),
               t * lines(code, "LDG"), t * lines(code, "STG"), t * sum(".MT88" in x for x in code))
        ends = (b, header) in graph.back
        ways = [(best[n], n) for n in graph.next[b] if n in best and (b, n) not in graph.back]
        rest, after[b] = max(ways + ([((0,) * 8, -1)] if ends or not ways else []))
        if not ends and not ways and b != header:  # leaves the loop: not a way through it
            continue
        best[b] = tuple(x + y for x, y in zip(own, rest))
    way, b = [], header
    while b != -1:
        way += graph.code[b] * times[b]
        b = after[b]
    return best[header][:3] + (-best[header][3],) + best[header][4:], way


def longest_gap(way):
    """instructions between two HMMA of a loop, at most; its end goes on at its beginning"""
    at = [i for i, text in enumerate(way) if opcode(text) in TENSOR]
    return max((b - a - 1 for a, b in zip(at, at[1:] + [at[0] + len(way)])), default=0) if at else 0


def around_waits(way):
    """(hmma_late, mufu_beside, mufu_late) of a loop that waits for products twice, else zeros"""
    waits = [i for i, text in enumerate(way) if text.startswith("WARPGROUP.DEPBAR")]
    if len(waits) != 2:
        return 0, 0, 0
    first = next(i for i in waits if not way[i].endswith("0x0"))     # one group may stay
    way = way[first:] + way[:first]
    last = next(i for i, text in enumerate(way) if text.startswith("WARPGROUP.DEPBAR") and i)
    beside = count(way[:last], "MUFU")
    return count(way[:last], *TENSOR), beside, count(way, "MUFU") - beside


def kernel_counts(code, pieces, sides):
    """[figures], one for each of `sides`, those that transpose least first;
    [] if there is no loop with HMMA"""
    graph = Graph(code)
    loops = graph.loops()
    hot = {h: b for h, b in loops.items() if any(count(graph.code[x], *TENSOR) for x in b)}
    main = {h: b for h, b in hot.items() if not any(i != h and hot[i] < b for i in hot)}
    ways = [w for w in (walk(graph, h, b, loops, pieces) for h, b in main.items()) if w[0][0]]
    kinds = sorted({w[7] / w[0] for w, _ in ways}) if sides > 1 else [None]
    if not ways or len(kinds) != sides:
        return []
    branches = sum(count(graph.code[x], "BSSY", "CALL") for x in set().union(*main.values()))
    found = []
    for kind in kinds:
        (hmma, ldgsts, mufu, instructions, ldsm, ldg, stg, _), way = min(
            (w for w in ways if kind in (None, w[0][7] / w[0][0])),
            key=lambda w: w[0][3] / w[0][0])
        late, beside, alone = around_waits(way)
        found.append(dict(per_hmma="%.2f" % (instructions / hmma), branches=branches, hmma=hmma,
                          instructions=instructions,
                          ldsm=ldsm, mufu=mufu, ldgsts=ldgsts, ldg=ldg, stg=stg,
                          gap=longest_gap(way), hmma_late=late, mufu_beside=beside,
                          mufu_late=alone))
    return found


def ptxas(path):
    """{(architecture, symbol): (registers, bytes spilled)}"""
    out, key, spill = {}, None, 0
    for line in open(path):
        m = re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line)
        if m:
            key = (m.group(2).rstrip("a"), m.group(1))
        m = re.search(r"(\d+) bytes spill stores", line)
        if m:
            spill = int(m.group(1))
        m = re.search(r"Used (\d+) registers", line)
        if m and key:
            out[key] = (int(m.group(1)), spill)
    return out


def table(path):
    rows = [line.rstrip("\n").split("\t") for line in open(path) if line.strip()
            and not line.startswith("#")]
    head = rows.pop(0)
    return {tuple(r[:4]): dict(zip(head[4:], r[4:])) for r in rows}


def check(budgets, counts):
    bad = 0
    for key, got in counts.items():
        want = budgets.get(key)
        if want is None:
            bad += 1
            print("FAIL %s: no row in the table of budgets; dev/gpu/sass.sh update adds it"
                  % " ".join(key))
            continue
        for figure in HELD:
            now, budget = float(got[figure]), float(want[figure])
            most = budget * MARGIN if figure in HELD_ABOUT else budget
            if now < budget if figure in HELD_ABOVE else now > most:
                bad += 1
                print("FAIL %s: %s is %s, budget %s" % (" ".join(key), figure, got[figure],
                                                        want[figure]))
    below = sum(float(got["per_hmma"]) * MARGIN < float(budgets[key]["per_hmma"])
                for key, got in counts.items() if key in budgets)
    if below:
        print("%d kernels are more than 2%% below their budget: dev/gpu/sass.sh update writes the "
              "table anew" % below)
    if not counts:
        bad += 1
        print("FAIL nothing was counted")
    print("%d passed, %d failed" % (len(counts) * len(HELD) - bad, bad))
    return bad != 0


def write(path, rows, comment):
    with open(path, "w") as f:
        f.write(comment + "\t".join(KEYS + FIGURES) + "\n")
        for key in sorted(rows, key=lambda k: (k[3], k[0], int(k[2]), k[1])):
            f.write("\t".join(key + tuple(str(rows[key][x]) for x in FIGURES)) + "\n")


def main():
    if sys.argv[1] in ("--check", "--update"):
        budgets, counts = sys.argv[2], table(sys.argv[3])
        if sys.argv[1] == "--check":
            return check(table(budgets), counts)
        comment = "".join(line for line in open(budgets) if line.startswith("#"))
        gone = {key: row for key, row in table(budgets).items() if key not in counts}
        write(budgets, {**gone, **counts}, comment)
        print("%d rows written to %s, %d kept" % (len(counts), budgets, len(gone)))
        return 0
    tiles = {tuple(line.split()[:2]): int(line.split()[2]) for line in open(sys.argv[1])}
    used = ptxas(sys.argv[2])
    rows = {}
    for arch, symbol, code in functions(sys.stdin):
        name = name_of(symbol)
        if not name or ("wgmma" in symbol and arch == "sm_80"):     # empty there
            continue
        parts = ["dk", "dq"] if name[1] == "dqk" else [name[1]]
        found = kernel_counts(code, tiles.get(name[1:], 0), len(parts))
        if not found:
            print("%s: found not %d kinds of loops with HMMA" % (" ".join(name), len(parts)),
                  file=sys.stderr)
            return 1
        for part, figures in zip(parts, found):
            figures["registers"], figures["spill"] = used[arch, symbol]
            rows[name[0], part, name[2], arch] = figures
    write("/dev/stdout", rows, "")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# dev/make/cut_model.py on a tiny LLaMA: what is kept computes what it did, and what it measures to
# choose neurons and heads is what `probe` measures; dev/make/cut_results.py keeps what was measured
. test/ok.sh
need_python 19 test_cut
export OMP_NUM_THREADS=1
make -s binary BACKEND=cpu > /dev/null || exit 1
binary=build/cpu/train_sink; whole=test/after/score/llama; out=build/test/cut
rm -rf $out; mkdir -p $out
said=$out/stdout
cut() { works $PYTHON dev/make/cut_model.py "$@"; }
keep() { works $PYTHON dev/make/cut_results.py "$@"; }
# lines of Python, with what they say is wrong
holds() { works env PYTHONPATH=dev/make${PYTHONPATH:+:$PYTHONPATH} $PYTHON -c "import json; $1"; }
random() { # a probe of random tokens, without the name of the model
    works $binary probe "$1" --probe-input random --json "$2"
    sed -i 's/"checkpoint":"[^"]*",//' "$2"
}

# ---- layers: the first of two sees what it saw
cut $whole $out/first --layers 0
random $whole $out/whole.json; random $out/first $out/first.json
holds "a, b = [json.load(open('$out/%s.json' % n)) for n in ('whole', 'first')]
assert len(b['alpha1']) == 1 and a['alpha1'][:1] == b['alpha1'], (a['alpha1'], b['alpha1'])
assert a['h_norm_first'][:2] == b['h_norm_first'] and a['h_norm_rest'][:2] == b['h_norm_rest']"
cut $whole $out/both --layers 0-1; random $out/both $out/both.json
works cmp $out/whole.json $out/both.json
cut $whole $out/back --layers 1,0; random $out/back $out/back.json
! cmp -s $out/whole.json $out/back.json; ok $? "layers in another order are the same"

# ---- ids: the first rows, and a tokenizer that makes no others
cut $whole $out/ids --vocab 120
holds "
import cut_model
a, b = [cut_model.read_tensors(d + '/model.safetensors') for d in ('$whole', '$out/ids')]
for name in ('model.embed_tokens.weight', 'lm_head.weight'):
    assert b[name][0] == [120, 16] and a[name][1].startswith(b[name][1]), name
t = json.load(open('$out/ids/tokenizer.json'))['model']
assert sorted(t['vocab'].values()) == list(range(120))
made = [l + r for l, r in t['merges']]
assert made and all(m in t['vocab'] for m in made)"
$PYTHON test/scripts/texts.py 200 60 > $out/text.jsonl
works $binary probe $out/ids -d $out/text.jsonl --bos none

# ---- mistakes are named
named() { # what is said, flags
    words=$1; shift
    ! $PYTHON dev/make/cut_model.py $whole "$@" > $said 2>&1 && grep -q -- "$words" $out/stdout; ok $? "$*: $(cat $out/stdout)"
}
named "wanted layers from 0 to 1" $out/no --layers 1-2
named "exists" $out/first --layers 0
named "want --text" $out/no --ffn 4
named "wanted 1 to 220" $out/no --vocab 221

# ---- what is kept of probes, runs and edits
made=$out/made; mkdir -p $made/9M-s1
cp test/demo/text-softmax/log.jsonl $made/9M-s1
random $whole $made/9M.json
edit() { works $binary eval $whole -d $out/text.jsonl --bos none --json $made/$1.json --edit "$2"; }
edit e-mask 'A:*:1=mask'; edit e-v0 'v:*:1=0'
keep $made $made/all.json
holds "
kept, p, e = [json.load(open('$made/%s.json' % n)) for n in ('all', '9M', 'e-v0')]
log = [json.loads(line) for line in open('$made/9M-s1/log.jsonl')]
assert list(kept['cuts']) == ['9M'] and list(kept['runs']) == ['9M-s1'] and kept['inputs'] == {}
row, = kept['cuts']['9M']['probes']
assert row['probe_loss'] == round(p['probe_loss'], 4) and row['alpha1_max'][1] == round(max(p['alpha1'][1]), 3)
assert abs(row['h_ratio'][2] * p['h_norm_rest'][2] / p['h_norm_first'][2] - 1) < 1e-3
last = [o for o in log if o['event'] == 'train'][-1]
evals = [o for o in log if o['event'] == 'eval']
rows = kept['runs']['9M-s1']
assert [o['step'] for o in rows] == [o['step'] for o in evals] and len(rows) > 5
assert all(o['tokens'] * last['step'] == o['step'] * last['tokens'] for o in rows)
assert rows[-1]['sink_1'] == round(evals[-1]['sink']['sink_k'][0], 4) > 0.9
assert [o['kind'] for o in kept['edits']] == ['plain', 'edit', 'edit']
assert kept['edits'][2]['loss'] == round(e['runs'][-1]['loss'], 4) and kept['edits'][2]['name'] == 'v:*:1=0'"
# what the file has and the directory has not stays
sed 's/"9M"/"16M"/; s/"9M-s1"/"6M-s2"/' $made/all.json > $made/old.json; rm -r $made/9M-s1 $made/e-*.json
keep $made $made/old.json
holds "
kept, was = [json.load(open('$made/%s.json' % n)) for n in ('old', 'all')]
assert list(kept['cuts']) == ['16M', '9M'] and kept['cuts']['9M'] == was['cuts']['9M']
assert kept['runs'] == {'6M-s2': was['runs']['9M-s1']} and kept['edits'] == was['edits']"
$PYTHON dev/make/cut_results.py $made > $out/stdout 2>&1; [ $? = 2 ]; ok $? "one word: $(cat $out/stdout)"

# ---- neurons and heads (NumPy)
if $PYTHON -c 'import numpy' 2> /dev/null; then
    cp $out/text.jsonl $out/val.jsonl
    works $binary tokenize $out/text.jsonl --val $out/val.jsonl --tokenizer $whole/tokenizer.json -o $out/shards
    works $binary probe $whole -d $out/shards --bos none --probe-seqs 64 --json $out/text.json
    holds "
import cut_model, numpy as np
config = json.load(open('$whole/config.json'))
w = cut_model.Writers(cut_model.read_tensors('$whole/model.safetensors'), config, '$out/shards')
p = json.load(open('$out/text.json'))
for l in range(3):
    length = np.linalg.norm(w.h, axis=-1)
    got, wanted = [length[:, 0].mean(), length[:, 1:].mean()], [p['h_norm_first'][l], p['h_norm_rest'][l]]
    assert np.allclose(got, wanted, rtol=1e-4), (l, got, wanted)
    if l < 2: w.layer(l)"
    cut $whole $out/small --ffn 8 --kv-heads 1 --text $out/shards; random $out/small $out/small.json
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

# dev/make/cut_model.py on a tiny LLaMA: what is kept computes what it did, and what it measures to
# choose neurons and heads is what `probe` measures
. test/ok.sh
need_python 22 test_cut
export OMP_NUM_THREADS=1
make -s binary BACKEND=cpu > /dev/null || exit 1
binary=build/cpu/train_sink; whole=test/after/score/llama; out=build/test/cut
rm -rf $out; mkdir -p $out
said=$out/stdout
cut() { works $PYTHON dev/make/cut_model.py "$@"; }
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
finish

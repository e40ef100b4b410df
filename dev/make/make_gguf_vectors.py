#!/usr/bin/env python3
"""make_gguf_vectors.py -- what test/open/test_gguf.cpp reads: a small GGUF file written by the package
gguf, and the floats that its dequantizers make of every tensor in it, as safetensors.

    python3 dev/make/make_gguf_vectors.py [test/vectors/gguf]    needs numpy, gguf and safetensors
                                                            (pip install)

The package has quantizers for all types but those of 256 numbers and IQ4_NL.
Blocks of these are random bits with scales that are finite; so are some rows of the other types:
that way every bit of a block has been seen at work.
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

# where a block keeps its 16-bit floats: random ones there could be infinite
HALVES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
          Type.MXFP4: [], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0],
          Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.IQ4_XS: [0], Type.IQ3_S: [0]}


def random_blocks(rng, kind, rows, cols):
    """rows of random bits that are blocks of this type; every sixth 16-bit float is subnormal"""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n = rows * cols // block
    x = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES[kind]:
        h = (rng.standard_normal(n) * 0.02).astype(np.float16)
        h[::6] = np.float16(3e-6)
        x[:, at:at + 2] = h.view(np.uint8).reshape(n, 2)
    if kind == Type.MXFP4:
        x[:, 0] = rng.integers(100, 140, n)
        x[:3, 0] = [0, 1, 254]                      # 2^-127, 2^-126, 2^127
    return x.reshape(rows, cols // block * size)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "test/vectors/gguf"
    rng = np.random.default_rng(14)
    w = gguf.GGUFWriter(out + "/types.gguf", "llama")
    # one key of every kind
    w.add_uint8("k.u8", 200)
    w.add_int8("k.i8", -100)
    w.add_uint16("k.u16", 60000)
    w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4000000000)
    w.add_int32("k.i32", -2000000000)
    w.add_uint64("k.u64", 1 << 40)
    w.add_int64("k.i64", -(1 << 40))
    w.add_float32("k.f32", 0.1)
    w.add_float64("k.f64", 0.1)
    w.add_bool("k.bool", True)
    w.add_string("k.string", "caf\u00e9 \u2581"); w.add_string("k.empty", "")
    w.add_array("k.strings", ["a", "", "\u0120bc"]); w.add_array("k.floats", [0.5, -1.25, 1e-30])
    w.add_array("k.ints", [3, -4, 5]); w.add_array("k.bools", [True, False])
    want = {}

    def put(name, data, kind):
        want[name] = gguf.dequantize(data, kind).astype(np.float32)
        w.add_tensor(name, data, raw_dtype=kind)

    x = rng.standard_normal((3, 64)).astype(np.float32)
    x[0, :4] = [0, -0.0, 1e-8, -70000]
    w.add_tensor("F32", x); want["F32"] = x
    half = x.astype(np.float32).clip(-60000, 60000).astype(np.float16)
    w.add_tensor("F16", half); want["F16"] = half.astype(np.float32)
    put("BF16", gguf.quantize(x, Type.BF16), Type.BF16)
    w.add_tensor("vector", x[1, :5].copy()); want["vector"] = x[1, :5].copy()
    w.add_tensor("cube", x[:, :8].reshape(2, 3, 4).copy())
    want["cube"] = x[:, :8].reshape(2, 3, 4).copy()
    for kind in (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.MXFP4):
        put(kind.name, gguf.quantize(x, kind), kind)
        put(kind.name + ".bits", random_blocks(rng, kind, 3, 64), kind)
    for kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
        put(kind.name + ".bits", random_blocks(rng, kind, 2, 512), kind)
    put("IQ4_NL.bits", random_blocks(rng, Type.IQ4_NL, 3, 64), Type.IQ4_NL)
    for kind in (Type.Q2_K, Type.Q3_K, Type.IQ4_XS):
        put(kind.name + ".bits", random_blocks(rng, kind, 3, 512), kind)
    # a type that is known by name and size only
    w.add_tensor("IQ3_S", random_blocks(rng, Type.IQ3_S, 1, 256), raw_dtype=Type.IQ3_S)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    save_file(want, out + "/types.safetensors")


main()

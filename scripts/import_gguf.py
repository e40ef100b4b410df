#!/usr/bin/env python3
"""import_gguf.py IN.gguf OUT.gguf -- a GGUF file that train_sink can read from
one with types it cannot.

train_sink reads F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS and
MXFP4. Tensors of other types (IQ2_XS, IQ3_S, ..) are written as the floats that they stand for;
everything else, settings and tokenizer included, is copied as it is.
    pip install gguf
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFValueType as Value

READABLE = {Type[t]
            for t in "F32 F16 BF16 F64 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL "
                     "IQ4_XS MXFP4".split()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        item = field.types[-1] if field.types[0] == Value.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], item)
    changed = {}
    for t in reader.tensors:
        if t.tensor_type in READABLE:
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        changed[t.tensor_type.name] = changed.get(t.tensor_type.name, 0) + 1
        writer.add_tensor(t.name, gguf.dequantize(t.data, t.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    what = ", ".join(f"{n} of {name}" for name, n in changed.items()) or "none"
    print(f"{target}: {len(reader.tensors)} tensors, made floats: {what}")


main()

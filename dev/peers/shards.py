"""Token ids as the shards that train_sink reads, for the checks in dev/ and dev/peers/."""
import os
import numpy as np


def write(directory, tokens):
    """Writes the tokens as train.bin and as val.bin: llm.c's header, then 16 bits per token."""
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, len(tokens)
    for name in ("train.bin", "val.bin"):
        with open(os.path.join(directory, name), "wb") as f:
            f.write(header.tobytes() + tokens.astype(np.uint16).tobytes())

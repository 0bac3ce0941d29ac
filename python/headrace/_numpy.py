"""From DLPack structs to numpy arrays without a copy."""

import numpy

from headrace import _library

_NUMPY_TYPES = {"uint8": "|u1", "float16": "<f2", "float32": "<f4", "int64": "<i8", "float64": "<f8"}


class _Owner:
    """What an array's `base` keeps alive: the capsule, whose C destructor gives the memory back.

    numpy makes arrays from an unversioned DLPack capsule read-only; the array interface lets people subtract means in place.
    """

    __slots__ = ("__array_interface__", "_capsule")

    def __init__(self, capsule, interface):
        self._capsule, self.__array_interface__ = capsule, interface


def converter(field):
    """A function (DLPack capsule, address of its DLManagedTensor) → array."""
    typestr = _NUMPY_TYPES[field.dtype]
    itemsize, ndim = int(typestr[2]), field.ndim

    def convert(capsule, address):
        tensor = _library.ManagedTensor.from_address(address)
        interface = {
            "version": 3,
            "typestr": typestr,
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
            "shape": tuple(tensor.shape[:ndim]),
        }
        if tensor.strides:
            interface["strides"] = tuple([stride * itemsize for stride in tensor.strides[:ndim]])
        return numpy.asarray(_Owner(capsule, interface))

    return convert

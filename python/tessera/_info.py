# What the library was built with and what machine it runs on.
# SPDX-License-Identifier: MIT
import ctypes
from typing import NamedTuple

from ._call import whole
from ._dtypes import NAMES
from ._library import CDeviceInfo, CRowInfo, lib, raise_error


class Row(NamedTuple):
    """One compiled kernel."""

    family: str
    op: str
    name: str
    library: str
    in_dtype: str
    out_dtype: str
    is_batch_invariant: bool


class DeviceInfo(NamedTuple):
    """A CUDA device."""

    name: str
    compute_capability: int
    num_sms: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    sm_clock_khz: int


def rows():
    """Every compiled kernel, the preferred ones of an operation first; empty without CUDA."""
    count = lib.num_rows()
    if count < 0:
        raise_error(3)
    return [_row(index) for index in range(count)]


def _row(index):
    info = CRowInfo(ctypes.sizeof(CRowInfo))
    status = lib.row_info(index, ctypes.addressof(info))
    if status:
        raise_error(status)
    texts = (info.family, info.op, info.name, info.library)
    dtypes = (NAMES[info.in_dtype], NAMES[info.out_dtype])
    return Row(*(text.decode() for text in texts), *dtypes, bool(info.is_batch_invariant))


def num_cuda_devices():
    """0 where there is no GPU, no driver, or the library was built without CUDA."""
    return lib.num_cuda_devices()


def device_info(index=0):
    """What CUDA device `index` is and can do."""
    info = CDeviceInfo(ctypes.sizeof(CDeviceInfo))
    index = whole(index, "device_info: index", low=-(2**31), high=2**31 - 1)
    status = lib.device_info(index, ctypes.addressof(info))
    if status:
        raise_error(status)
    fields = [getattr(info, name) for name in DeviceInfo._fields[1:]]
    return DeviceInfo(info.name.decode(errors="replace"), *fields)


def cuda_version():
    """The CUDA runtime the library was built with, such as "13.0"; "" without CUDA."""
    return lib.cuda_version().decode()

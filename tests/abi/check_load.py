"""libdynatrain.so in a process that has its own ZeroMQ and C++ runtime, as a
Python with pyzmq and torch has: neither sees the other's.
usage: check_load.py LIBRARY"""

import ctypes
import ctypes.util
import sys
import time


def main():
    theirs = []
    for name in ("zmq", "stdc++", "msgpackc"):
        found = ctypes.util.find_library(name)
        if found:
            theirs.append(ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL))
    start = time.perf_counter()
    ours = ctypes.CDLL(sys.argv[1])
    took = time.perf_counter() - start
    ours.dyt_version_text.restype = ctypes.c_char_p
    assert ours.dyt_version_text().count(b".") == 2
    for name in ("zmq_ctx_new", "msgpack_sbuffer_init", "crypto_box",
                 "gss_wrap", "pgm_init", "dyti_error_set"):
        shown = hasattr(ours, name)
        elsewhere = any(hasattr(other, name) for other in theirs)
        # dlsym() on a handle looks into what it needs, too: libc only
        assert not shown or elsewhere, f"{name} is shown"
    # theirs still works
    if theirs and hasattr(theirs[0], "zmq_ctx_new"):
        zmq = theirs[0]
        zmq.zmq_ctx_new.restype = ctypes.c_void_p
        zmq.zmq_ctx_term.argtypes = [ctypes.c_void_p]
        context = zmq.zmq_ctx_new()
        assert context and zmq.zmq_ctx_term(context) == 0
    threads = len([t for t in __import__("os").listdir("/proc/self/task")])
    assert threads == 1, f"{threads} threads after loading"
    print(f"abi: loaded in {took * 1e3:.1f} ms beside {len(theirs)} others")


if __name__ == "__main__":
    main()

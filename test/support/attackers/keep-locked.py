"""Keeps the lock of a pipe or terminal: the kernel copies under it, from or to a page that never comes (userfaultfd(2)).

usage: keep-locked.py read PATH | again | size | leave | probe
read and size do that with a file or the size of the terminal; leave writes in a child and ends itself, after it has
given up its terminal; again has the lock of its output for 1.5 s again and again. The line `held PID` names the process
that has the lock. probe fails where that is impossible.
"""
import ctypes, fcntl, os, platform, select, signal, struct, sys, termios, threading, time

SIZE = 65536
PAGE = os.sysconf('SC_PAGESIZE')
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), 'userfaultfd')
    return result


def hole():
    """Returns the address of memory that has no pages, and the descriptor that tells of those that are missed."""
    faults = checked(libc.syscall({'x86_64': 323}.get(platform.machine(), 282), os.O_CLOEXEC | os.O_NONBLOCK))
    fcntl.ioctl(faults, 0xC018AA3F, bytearray(struct.pack('QQQ', 0xAA, 0, 0)))  # UFFDIO_API
    at = libc.mmap(None, ctypes.c_size_t(SIZE), 3, 0x22, -1, ctypes.c_long(0))
    fcntl.ioctl(faults, 0xC020AA00, bytearray(struct.pack('QQQQ', at, SIZE, 1, 0)))  # UFFDIO_REGISTER
    return ctypes.c_void_p(at), faults


def keep(call):
    """Returns when the call has the lock."""
    at, faults = hole()
    threading.Thread(target=call, args=(at,), daemon=True).start()
    select.select([faults], [], [])
    return faults


def again():
    at, faults = hole()

    def write():
        while True:
            os.write(1, b'x')
            libc.write(1, at, PAGE)
            libc.madvise(at, ctypes.c_size_t(PAGE), 4)  # MADV_DONTNEED
            time.sleep(0.01)

    threading.Thread(target=write, daemon=True).start()
    while True:
        select.select([faults], [], [])
        os.read(faults, 4096)
        time.sleep(1.5)
        fcntl.ioctl(faults, 0xC020AA04, bytearray(struct.pack('QQQQ', at.value, PAGE, 0, 0)))  # UFFDIO_ZEROPAGE


def main(how, path=None):
    if how == 'probe':
        return hole()
    if how == 'leave':
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCNOTTY)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            kept = keep(lambda at: libc.write(1, at, SIZE))
            os.write(tell, b'x')
            time.sleep(1000)
        print('held', child, flush=True)
        os.read(told, 1)
        os._exit(0)
    if how == 'read':
        file = os.open(path, os.O_RDONLY)
        print('ready', flush=True)
        kept = keep(lambda at: libc.read(file, at, SIZE))
    if how == 'again':
        print('held', os.getpid(), flush=True)
        again()
    if how == 'size':
        kept = keep(lambda at: libc.ioctl(0, termios.TIOCGWINSZ, at))
    print('held', os.getpid(), flush=True)
    time.sleep(1000)


if __name__ == '__main__':
    main(*sys.argv[1:])

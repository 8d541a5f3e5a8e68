# Holds the lock of a directory again and again, as a user who may read it: held-directory.py <uid> <directory> <seconds>, in a
# directory of its own. getdents64(2) has the lock while it writes to memory, here that of a file whose server is stopped.
import ctypes, os, signal, subprocess, sys, time

uid, directory, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
parent = os.getppid()
GETDENTS64 = {"x86_64": 217, "aarch64": 61}[os.uname().machine]
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
PAGES = 65536

for name in ("behind", "mounted"):
    os.mkdir(name)
server = subprocess.Popen(["bindfs", "-f", "behind", "mounted"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit())


def hold():
    with open("mounted/page", "wb") as page:
        page.truncate(PAGES)
    page = libc.mmap(None, PAGES, 3, 1, os.open("mounted/page", os.O_RDWR), 0)
    os.kill(server.pid, signal.SIGSTOP)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    listing = os.open(directory, os.O_RDONLY)
    os.write(1, b"ready\n")
    libc.syscall(GETDENTS64, listing, ctypes.c_void_p(page), PAGES)
    os._exit(0)


try:
    while not os.path.ismount("mounted"):
        time.sleep(0.01)
    while os.getppid() == parent:
        holder = os.fork()
        if holder == 0:
            hold()
        time.sleep(seconds)
        os.kill(server.pid, signal.SIGCONT)
        os.waitpid(holder, 0)
        os.remove("mounted/page")
        time.sleep(seconds)
finally:
    server.send_signal(signal.SIGCONT)
    subprocess.run(["umount", "-l", "mounted"])
    server.kill()
    server.wait()

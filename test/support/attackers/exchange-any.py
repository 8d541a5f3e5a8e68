# As an untrusted user, exchanges any two of the names in a directory until the parent has ended, and makes those that
# are missing again, as a file, a directory, a hard link, a fifo, or a link to root's files:
# exchange-any.py <uid> <directory> <seed> <target> ...
import ctypes, os, random, sys

uid, directory, seed, targets = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
parent = os.getppid()
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
os.chdir(directory)
os.umask(0)
libc = ctypes.CDLL(None)
chance = random.Random(seed)
NAMES = ["x", "y", "z", "u", "v", "w", "x/f", "x/d", "y/f", "y/d"]


def make(name):
    kind = chance.randrange(6)
    if kind == 0:
        with open(name, "w") as file:
            file.write("own")
    elif kind == 1:
        os.mkdir(name)
    elif kind == 2:
        os.link("own", name)
    elif kind == 3:
        os.mkfifo(name)
    else:
        os.symlink(chance.choice(targets), name)


def attempt(work, *arguments):
    try:
        work(*arguments)
    except OSError:
        pass


with open("own", "w") as own:
    own.write("own")
for each in NAMES:
    attempt(make, each)
print("ready", flush=True)
while os.getppid() == parent:
    left, right = chance.sample(NAMES, 2)
    libc.renameat2(-100, left.encode(), -100, right.encode(), 2)
    if chance.randrange(8) == 0:
        attempt(make, chance.choice(NAMES + ["own"]))

"""Tries to listen at a port again and again; tells what it got.

usage: port-thief.py PORT
Writes `trying` when it has tried once, then `got ADDRESS` for each success; at the end of its input the number of tries.
"""
import select, socket, sys

port = int(sys.argv[1])
PLACES = ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::'))
tries = 0


def steal(family, address, reuse):
    with socket.socket(family) as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            thief.bind((address, port))
            thief.listen()
            print('got', address, flush=True)
        except OSError:
            pass


while not select.select([sys.stdin], [], [], 0.001)[0]:
    for family, address in PLACES:
        for reuse in (0, 1):
            steal(family, address, reuse)
    if tries == 0:
        print('trying', flush=True)
    tries += 1
print(tries, flush=True)

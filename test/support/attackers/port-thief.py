"""Tries to listen at a port again and again; tells what it got.

usage: port-thief.py PORT
Writes `got ADDRESS` for each success. A line of its input is answered with `tried` when it has tried everything once more. Its
input's end ends it.
"""
import os, select, socket, sys

port = int(sys.argv[1])
PLACES = ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '0.0.0.0'), (socket.AF_INET6, '::'))


def steal(family, address, reuse):
    with socket.socket(family) as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        try:
            thief.bind((address, port))
            thief.listen()
            print('got', address, flush=True)
        except OSError:
            pass


def try_all():
    for family, address in PLACES:
        for reuse in (0, 1):
            steal(family, address, reuse)


while True:
    try_all()
    if select.select([0], [], [], 0.001)[0]:
        asked = os.read(0, 100)
        if not asked:
            break
        try_all()
        print('tried', flush=True)

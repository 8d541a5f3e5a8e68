"""What systemd does for the daemon: keeps its descriptors, starts it again whenever it ends, and reaps orphans.

usage: service-manager.py SOCKET COMMAND...
Each start is a line of JSON on standard output, as the log of the daemon is. SIGTERM stops both.
"""
import array, ctypes, fcntl, json, os, select, signal, socket, sys

PR_SET_CHILD_SUBREAPER = 36
FIRST = 3

path, command = sys.argv[1], sys.argv[2:]
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
store = []


def tell(**line):
    os.write(1, (json.dumps(line) + '\n').encode())


def start():
    child = os.fork()
    if child:
        tell(msg='started', main=child, stored=[name for name, _ in store])
        return child
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 200) for _, descriptor in store]
    for index, descriptor in enumerate(high):
        os.dup2(descriptor, FIRST + index)
    os.closerange(FIRST + len(high), 1000)
    environment = dict(os.environ, NOTIFY_SOCKET=path)
    if high:
        names = ':'.join(name for name, _ in store)
        environment |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': str(len(high)), 'LISTEN_FDNAMES': names}
    os.execvpe(command[0], command, environment)


def is_stored(descriptor):
    return any(os.path.sameopenfile(descriptor, other) for _, other in store)


def on_message():
    global store
    text, control, _, _ = manager.recvmsg(4096, socket.CMSG_SPACE(4 * 8))
    fields = dict(line.split('=', 1) for line in text.decode().splitlines())
    descriptors = array.array('i')
    for _, _, data in control:
        descriptors.frombytes(data)
    name = fields.get('FDNAME', 'stored')
    for descriptor in descriptors:
        if 'FDSTORE' in fields and not is_stored(descriptor):
            store.append((name, descriptor))
        else:
            os.close(descriptor)
    if 'FDSTOREREMOVE' in fields:
        for _, descriptor in [each for each in store if each[0] == name]:
            os.close(descriptor)
        store = [each for each in store if each[0] != name]


signal.signal(signal.SIGCHLD, lambda *_: None)
stopping = False


def stop(*_):
    global stopping
    stopping = True
    try:
        os.kill(main, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It has just ended.


signal.signal(signal.SIGTERM, stop)
main = start()
while True:
    for ready in select.select([woken, manager], [], [])[0]:
        if ready is manager:
            on_message()
        else:
            os.read(woken, 100)
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if ended == 0:
            break
        if ended == main:
            # What it has sent before its end comes first, as for systemd.
            while select.select([manager], [], [], 0)[0]:
                on_message()
            if stopping:
                sys.exit(os.waitstatus_to_exitcode(status))
            main = start()
            if stopping:
                os.kill(main, signal.SIGTERM)

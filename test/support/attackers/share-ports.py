# As an untrusted user, calls the daemon without a token from the address and port of every connection to it that /proc/net/tcp
# shows, by another of its addresses, until its input ends; prints how often it got each status: share-ports.py <uid> <port>
import json, os, select, socket, struct, sys

uid, port = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
# From <linux/in.h>.
IP_BIND_ADDRESS_NO_PORT, IP_LOCAL_PORT_RANGE = 24, 51
CALLS = [
    b"POST /process.Process/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"GET /envs HTTP/1.1\r\nHost: x\r\n\r\n",
]
statuses = {}


def callers():
    """The local ports of connections from 127.0.0.1 to the daemon."""
    with open("/proc/net/tcp") as table, open("/proc/net/tcp6") as table6:
        rows = [line.split() for line in [*list(table)[1:], *list(table6)[1:]]]
    for row in rows:
        (_, local), (_, remote) = row[1].split(":"), row[2].split(":")
        if int(remote, 16) == port and row[3] in ("01", "02"):
            yield int(local, 16)


def ask(source, call):
    with socket.socket() as client:
        client.settimeout(5)
        client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        client.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", source | source << 16))
        client.bind(("127.0.0.1", 0))
        client.connect(("127.0.0.2", port))
        client.sendall(call)
        return client.recv(4096).split(b" ")[1].decode()


print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for source in list(callers()):
        for call in CALLS:
            try:
                status = ask(source, call)
            except OSError:
                continue
            except IndexError:
                status = "none"
            statuses[status] = statuses.get(status, 0) + 1
print(json.dumps(statuses), flush=True)

"""Clients that vanish without a word, as those of a machine that was paused: the kernel drops whatever is sent to them.

usage: vanishing-clients.py PORT COMMAND...
One client has a connection that is kept alive, and one a stream for each COMMAND. Writes `vanished` when all have been answered
and have vanished; ends with its input.
"""
import ctypes, json, socket, struct, sys

SO_ATTACH_FILTER = 26
DROP_ALL = struct.pack('HBBI', 0x06, 0, 0, 0)

port, commands = int(sys.argv[1]), sys.argv[2:]


def send(path, kind, body):
    client = socket.create_connection(('127.0.0.1', port))
    head = f'POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n'
    client.sendall(head.encode() + body)
    assert client.recv(4096).startswith(b'HTTP/1.1 20'), path
    return client


def start(command):
    message = json.dumps({'process': {'cmd': 'bash', 'args': ['-c', command]}}).encode()
    frame = struct.pack('>BI', 0, len(message)) + message
    return send('/process.Process/Start', 'application/connect+json', frame)


clients = [send('/process.Process/List', 'application/json', b'{}'), *map(start, commands)]
for client in clients:
    code = ctypes.create_string_buffer(DROP_ALL)
    program = struct.pack('HL', 1, ctypes.addressof(code))
    client.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
print('vanished', flush=True)
sys.stdin.read()

import { readFileSync } from 'node:fs';
import { describe, expect, type TestOptions, test } from 'vitest';
import { commandsOf } from '../support/code/documents.ts';
import { booted, whenBooted } from '../support/guest/booted.ts';
import { FIRECRACKER } from '../support/guest/processor.ts';
import { resumed } from '../support/guest/resumed.ts';

const unit = (name: string) => readFileSync(new URL(`../../examples/vsock/${name}`, import.meta.url), 'utf8');

const ENABLE = commandsOf('docs/recipes.md', 'systemctl enable --now port-forwarding.socket');

/** One request by vsock to the guest itself (sockaddr_vm of vsock(7): VMADDR_CID_LOCAL is 1); prints the response. */
const CALL = `
use Socket;
alarm 30;
socket(my $socket, 40, SOCK_STREAM, 0) or die "socket: $!";
connect($socket, pack('SSLLx4', 40, 0, 49983, 1)) or die "connect: $!";
syswrite $socket, "GET $ARGV[0] HTTP/1.1\\r\\nhost: guest\\r\\n$ARGV[1]connection: close\\r\\n\\r\\n";
print while <$socket>;
`;

const withLoopback: TestOptions =
  process.env.ENVD_GUEST_KERNEL === FIRECRACKER
    ? { skip: true, meta: { notRun: `the kernel '${FIRECRACKER}' has no vsock_loopback` } }
    : whenBooted;

describe('the recipe for vsock', withLoopback, () => {
  test('serves calls by vsock, and asks for the token as everywhere', async () => {
    await using guest = await resumed(booted);
    for (const name of ['port-forwarding.socket', 'port-forwarding.service'])
      await guest.call('POST', `/files?path=/etc/systemd/system/${name}`, unit(name));
    await guest.call('POST', '/files?path=/run/call.pl', CALL);
    await guest.system(`modprobe vsock_loopback && systemctl daemon-reload && ${ENABLE}`);
    const call = (path: string, headers = '') => guest.shell(`perl /run/call.pl ${path} '${headers}'`);
    expect(await call('/health')).toMatch(/^HTTP\/1.1 204 /);
    expect(await call('/envs')).toMatch(/^HTTP\/1.1 401 /);
    expect(await call('/envs', `x-access-token: ${guest.token}\r\n`)).toMatch(/^HTTP\/1.1 200 /);
    // The platform goes on by vsock when all else stands still.
    expect((await guest.call('POST', '/freeze?mode=hierarchy')).status).toBe(204);
    expect(await guest.system("perl /run/call.pl /health ''")).toMatch(/^HTTP\/1.1 204 /);
  });
});

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Platform } from './platform.ts';

const USAGE = `usage: npm run platform -- [OPTION…] [-- FLAG OF THE GATEWAY…]
A platform on this machine: the gateway, with hooks that make sandboxes here. They end with it. As root.
  --backend container|qemu what sandboxes are; default: container
  --kvm                    virtual machines use KVM, which they otherwise do without
  --host, --port           where it listens; default: 127.0.0.1, 49980
  --directory DIRECTORY    for its files; default: /var/lib/envd-platform
  --memory MIB             the memory of one sandbox; default: 1024
  --packages A,B           Debian packages that sandboxes have, too
  --domain NAME            <port>-<id>.<name> is a sandbox; default: sandboxes.localhost
  --daemon DIRECTORY       the built daemon; default: dist
E2B_API_KEY may have the key of the platform; otherwise it makes a new one.
`;

/** A clone of the project, or the built directory of the gateway. */
const ROOT = join(import.meta.dirname, '../..');
const BUILT_GATEWAY = join(ROOT, 'bin/envd-gateway');
const isBuilt = existsSync(BUILT_GATEWAY);

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      backend: { type: 'string', default: 'container' },
      kvm: { type: 'boolean', default: false },
      host: { type: 'string', default: '127.0.0.1' },
      port: { type: 'string', default: '49980' },
      directory: { type: 'string', default: '/var/lib/envd-platform' },
      memory: { type: 'string', default: '1024' },
      packages: { type: 'string', default: '' },
      domain: { type: 'string', default: 'sandboxes.localhost' },
      daemon: { type: 'string', default: isBuilt ? '/opt/envd' : join(ROOT, 'dist') },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const { backend } = values;
  if (backend !== 'container' && backend !== 'qemu')
    throw new Error(`--backend must be container or qemu, not '${backend}'`);
  const say = (text: string) => process.stdout.write(`${text}\n`);
  await using platform = await Platform.start({
    ...values,
    directory: resolve(values.directory),
    daemon: resolve(values.daemon),
    backend,
    accelerator: values.kvm ? 'kvm' : 'tcg',
    port: Number(values.port),
    memory: Number(values.memory),
    packages: values.packages.split(',').filter(Boolean),
    key: process.env.E2B_API_KEY ?? null,
    gateway: isBuilt ? [BUILT_GATEWAY] : [process.execPath, join(ROOT, 'src/gateway/main.ts')],
    flags: positionals,
    say,
  });
  // Whoever reads that it runs may end it at once.
  const interruption = interrupted();
  const { url, key, directory, isLimited } = platform;
  say(`The platform runs. Ctrl+C ends it, with all sandboxes. The log is ${directory}/gateway.log.`);
  if (!isLimited)
    say('The memory of sandboxes is not limited: this machine has the controllers of cgroups in version 1.');
  say(`\n  export E2B_API_KEY=${key} E2B_API_URL=${url} E2B_SANDBOX_URL=${url}\n`);
  say(`Port 3000 of a sandbox: http://3000-<id>.${values.domain}:${new URL(url).port}/`);
  await Promise.race([platform.ended, interruption]);
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => resolve());
  });
}

await main().catch((error: unknown) => {
  process.stderr.write(`platform: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
});

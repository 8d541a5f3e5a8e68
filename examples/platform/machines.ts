import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Backend, Made } from './backend.ts';
import { SandboxCgroup } from './cgroup.ts';
import { connectMachine, disconnectMachine, findPlace, freePlace, type Place, takePlace } from './network.ts';
import { Qmp } from './qmp.ts';
import { homeOf, type Settings } from './settings.ts';
import { load, save } from './snapshots.ts';
import { removeTree, run, tail, until } from './tools.ts';

/** Who qemu is. No account of this machine, and no user of a container, has this number. */
const QEMU_ID = 0x7effffff;
const KERNEL = 'console=ttyS0 quiet net.ifnames=0 mitigations=off nokaslr random.trust_cpu=on';
/** Without KVM, and on a busy machine, a boot may take minutes. */
const BOOT_S = 600;
const ANSWER_S = 60;
/** What qemu needs besides the memory of the guest, in MiB. */
const OVERHEAD = 1024;
/** The address of every machine when it has just been forked, and that of its router (test/support/guest/init.sh). */
const FIRST_ADDRESS = '10.0.2.15';
const TEMPLATE_ID = 'template';

/** How long qemu may take until it can be controlled, in ms. */
const QEMU_MS = 30_000;
/** How much of its log an error quotes, in characters. */
const QUOTED = 400;

/** Virtual machines of qemu. Each is a fork of one that has booted: its memory and its disk are copies. */
export class VirtualMachines implements Backend {
  readonly #settings: Settings;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  get #template(): string {
    return join(this.#settings.image, 'template');
  }

  /** Boots the machine that all others are forks of, unless that was done before. */
  async prepare(say: (text: string) => void): Promise<void> {
    if (existsSync(this.#template)) return;
    say('booting a virtual machine, once');
    const home = homeOf(this.#settings, TEMPLATE_ID);
    mkdirSync(home, { mode: 0o711 });
    const disk = join(this.#settings.image, 'disk.ext4');
    run('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', disk, '-F', 'raw', join(home, 'disk.qcow2')]);
    const place = takePlace(this.#settings.directory, TEMPLATE_ID);
    const cgroup = await this.#start(TEMPLATE_ID, place, []);
    await this.#answers(place, BOOT_S);
    // Units that are still starting would go on in every fork.
    const settle =
      'systemctl is-system-running --wait >/dev/null || true; useradd --create-home --shell=/bin/bash user';
    this.#execute(place, settle);
    await this.#suspend(TEMPLATE_ID, cgroup);
    disconnectMachine(place);
    freePlace(this.#settings.directory, place);
    renameSync(home, this.#template);
  }

  async create(id: string): Promise<Made> {
    const home = homeOf(this.#settings, id);
    run('cp', ['--recursive', '--sparse=always', '--reflink=auto', this.#template, home]);
    const place = takePlace(this.#settings.directory, id);
    await this.#resumeIn(id, place);
    await this.#answers(place, ANSWER_S);
    this.#execute(
      place,
      `hostnamectl hostname ${id} || true
      ip address add ${place.address}/32 dev eth0
      ip route replace default via 10.0.2.2 src ${place.address}`,
    );
    const token = randomBytes(32).toString('hex');
    writeFileSync(join(home, 'token'), token, { mode: 0o600 });
    // Clones have the random numbers of their original until they get another id.
    return { address: place.address, envdAccessToken: token, init: { lifecycleID: id } };
  }

  async pause(id: string): Promise<void> {
    await this.#suspend(id, this.#cgroupOf(id));
  }

  async resume(id: string): Promise<void> {
    const place = findPlace(this.#settings.directory, id);
    if (!place) throw new Error('the machine is gone');
    const cgroup = this.#cgroupOf(id);
    // An earlier attempt may have left a qemu without its state.
    if (existsSync(join(homeOf(this.#settings, id), 'state'))) {
      await cgroup.remove();
      await this.#resumeIn(id, place);
    }
    await this.#setClock(id, place);
  }

  async remove(id: string): Promise<void> {
    const place = findPlace(this.#settings.directory, id);
    await this.#cgroupOf(id).remove();
    if (place) disconnectMachine(place);
    removeTree(homeOf(this.#settings, id));
    if (place) freePlace(this.#settings.directory, place);
  }

  #cgroupOf(id: string): SandboxCgroup {
    return new SandboxCgroup(this.#settings.cgroup, id);
  }

  async #resumeIn(id: string, place: Place): Promise<void> {
    await this.#start(id, place, ['-incoming', 'defer']);
    using qmp = await Qmp.connect(join(homeOf(this.#settings, id), 'control'));
    await load(qmp, homeOf(this.#settings, id));
  }

  async #suspend(id: string, cgroup: SandboxCgroup): Promise<void> {
    const home = homeOf(this.#settings, id);
    // An earlier attempt may have come so far.
    if (cgroup.exists && cgroup.isPopulated) {
      using qmp = await Qmp.connect(join(home, 'control'));
      await save(qmp, home, QEMU_ID);
    }
    if (!existsSync(join(home, 'state'))) throw new Error('the machine has ended');
    await cgroup.remove();
  }

  /** Starts qemu in a cgroup of its own; it goes on without this process. */
  async #start(id: string, place: Place, more: readonly string[]): Promise<SandboxCgroup> {
    const home = homeOf(this.#settings, id);
    const control = join(home, 'control');
    connectMachine(place, FIRST_ADDRESS);
    const cgroup = this.#cgroupOf(id);
    cgroup.make(this.#settings.memory + OVERHEAD);
    chmodSync(home, 0o711);
    // qemu opens its disk once more when its state has been loaded.
    for (const each of [home, join(home, 'disk.qcow2')]) chownSync(each, QEMU_ID, QEMU_ID);
    rmSync(control, { force: true });
    const script = `umask 077; echo $$ >"$0/cgroup.procs" && exec "$@" >'${home}/log' 2>&1`;
    const command = [script, cgroup.path, 'qemu-system-x86_64', ...this.#arguments(home, place), ...more];
    // It could not daemonize itself, because it may start no program.
    const qemu = spawn('sh', ['-c', ...command], { detached: true, stdio: 'ignore' });
    const hasEnded = () => qemu.exitCode !== null || qemu.signalCode !== null;
    await until('the start of qemu', QEMU_MS, () => hasEnded() || existsSync(control));
    if (hasEnded()) throw new Error(`qemu has ended: ${tail(join(home, 'log'), QUOTED)}`);
    qemu.unref();
    return cgroup;
  }

  #arguments(home: string, place: Place): readonly string[] {
    const { image, memory, accelerator } = this.#settings;
    const size = `${memory}M`;
    const isKvm = accelerator === 'kvm';
    return [
      ...['-accel', isKvm ? 'kvm' : 'tcg,tb-size=256', '-cpu', isKvm ? 'host' : 'Nehalem', '-m', size],
      ...[
        '-M',
        'q35,memory-backend=memory',
        '-nodefaults',
        '-no-user-config',
        '-display',
        'none',
        '-no-reboot',
      ],
      ...['-object', `memory-backend-file,id=memory,size=${size},mem-path=${home}/memory,share=on`],
      ...['-kernel', `${image}/vmlinuz`, '-initrd', `${image}/initrd.gz`, '-append', KERNEL],
      ...[
        '-drive',
        `id=disk,file=${home}/disk.qcow2,format=qcow2,if=none`,
        '-device',
        'virtio-blk-pci,drive=disk',
      ],
      ...[
        '-netdev',
        `tap,id=net,ifname=${place.link},script=no,downscript=no`,
        '-device',
        'virtio-net-pci,netdev=net',
      ],
      ...['-serial', `file:${home}/console`, '-qmp', `unix:${home}/control,server=on,wait=off`],
      ...['-sandbox', 'on,obsolete=deny,spawn=deny,resourcecontrol=deny', '-runas', `${QEMU_ID}:${QEMU_ID}`],
    ];
  }

  /** Resolves when the daemon answers at the address that all machines have first. */
  async #answers(place: Place, seconds: number): Promise<void> {
    this.#call(place, '/health', [
      '--retry',
      String(seconds),
      '--retry-delay',
      '1',
      '--retry-all-errors',
      '--retry-max-time',
      String(seconds),
    ]);
  }

  /** Runs a command as root in the machine, whose daemon has no token yet. */
  #execute(place: Place, command: string): void {
    const body = JSON.stringify({ cmd: 'sh', args: ['-ec', command], user: 'root' });
    this.#call(place, '/exec', ['--json', body, '--max-time', String(BOOT_S)]);
  }

  /** By the link, because several machines may have this address for a moment. */
  #call({ link }: Place, path: string, args: readonly string[]): string {
    const url = `http://${FIRST_ADDRESS}:49983${path}`;
    return run('curl', ['--silent', '--show-error', '--fail', '--interface', link, ...args, url]);
  }

  /** The clock has stood still while the machine was paused. */
  async #setClock(id: string, { address }: Place): Promise<void> {
    const accessToken = readFileSync(join(homeOf(this.#settings, id), 'token'), 'utf8');
    const response = await fetch(`http://${address}:49983/init`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ accessToken, timestamp: new Date().toISOString() }),
      signal: AbortSignal.timeout(ANSWER_S * 1000),
      // A machine may send this program to another sandbox, or answer without an end.
      redirect: 'manual',
    });
    await response.body?.cancel();
    if (!response.ok) throw new Error(`/init: ${response.status}`);
  }
}

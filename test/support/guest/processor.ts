/** A processor that a guest can have; none needs KVM. */
export interface Processor {
  /** As Debian names it. */
  readonly debian: 'amd64' | 'arm64';
  /** Of what is made for it: directories and kinds of cached files. */
  readonly suffix: '' | '-arm64';
  readonly prefix: '' | 'arm64-';
  /** The start of a command that runs its programs on this machine. */
  readonly emulator: readonly string[];
  /** Purposes in .ci/packages.txt. */
  readonly purposes: readonly string[];
  readonly qemu: string;
  readonly machine: string;
  /** How it has its devices: the end of the names that qemu gives them. */
  readonly transport: 'pci' | 'device';
  readonly cpu: string;
  readonly console: string;
}

const PROCESSORS: Readonly<Record<string, Processor>> = {
  amd64: {
    debian: 'amd64',
    suffix: '',
    prefix: '',
    emulator: [],
    purposes: ['guest'],
    qemu: 'qemu-system-x86_64',
    machine: 'q35',
    transport: 'pci',
    cpu: 'Nehalem',
    console: 'ttyS0',
  },
  arm64: {
    debian: 'arm64',
    suffix: '-arm64',
    prefix: 'arm64-',
    emulator: ['sh', '.ci/emulated'],
    purposes: ['guest', 'cross', 'guest-arm64'],
    qemu: 'qemu-system-aarch64',
    machine: 'virt,gic-version=3',
    transport: 'pci',
    // Newer ones sign pointers, which takes an emulator long.
    cpu: 'neoverse-n1',
    console: 'ttyAMA0',
  },
};

/** The value of ENVD_GUEST_KERNEL for a kernel that is compiled here (firecracker.config); others are releases of Debian. */
export const FIRECRACKER = 'firecracker';

/** A machine without PCI, as Firecracker's are; without KVM a kernel finds no clock in it that is described by ACPI. */
const MICROVM: Partial<Processor> = {
  ...{ machine: 'microvm,acpi=off,pit=on,pic=on,rtc=on', transport: 'device' },
  purposes: ['guest', 'guest-firecracker'],
};

/** The guest's: that of ENVD_GUEST_ARCH, or x86-64. Throws when it is another one. */
export function guestProcessor(): Processor {
  const wanted = process.env.ENVD_GUEST_ARCH || 'amd64';
  const processor = PROCESSORS[wanted];
  const isMicrovm = process.env.ENVD_GUEST_KERNEL === FIRECRACKER;
  if (isMicrovm && wanted !== 'amd64') throw new Error(`ENVD_GUEST_KERNEL=${FIRECRACKER} is for amd64 alone`);
  if (processor) return isMicrovm ? { ...processor, ...MICROVM } : processor;
  throw new Error(`ENVD_GUEST_ARCH: wanted ${Object.keys(PROCESSORS).join(' or ')}, found '${wanted}'`);
}

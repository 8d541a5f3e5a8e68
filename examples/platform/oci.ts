/** The first of the 65,536 users of the machine that the users of a container are. No account of the machine has these numbers. */
export const FIRST_ID = 0x7f000000;
const IDS = 65_536;

/** What the daemon and its clients need within the container. None of these capabilities counts outside of its user namespace. */
const CAPABILITIES = [
  ...['CAP_CHOWN', 'CAP_DAC_OVERRIDE', 'CAP_FOWNER', 'CAP_FSETID', 'CAP_KILL', 'CAP_NET_BIND_SERVICE'],
  ...['CAP_SETGID', 'CAP_SETUID', 'CAP_SETPCAP', 'CAP_SYS_CHROOT', 'CAP_SYS_PTRACE'],
];

/** System calls that no program of a sandbox needs, and through which kernels have been attacked. */
const REFUSED = [
  ...['add_key', 'keyctl', 'request_key', 'bpf', 'perf_event_open', 'userfaultfd'],
  ...['io_uring_setup', 'io_uring_enter', 'io_uring_register', 'open_by_handle_at', 'name_to_handle_at'],
  ...['kexec_load', 'kexec_file_load', 'init_module', 'finit_module', 'delete_module', 'acct', 'quotactl'],
  ...[
    'mount',
    'umount2',
    'pivot_root',
    'fsopen',
    'fsconfig',
    'fsmount',
    'move_mount',
    'open_tree',
    'mount_setattr',
  ],
  ...[
    'setns',
    'unshare',
    'swapon',
    'swapoff',
    'reboot',
    'syslog',
    'iopl',
    'ioperm',
    'vmsplice',
    'nfsservctl',
  ],
];

/** The most terminals of one sandbox. Those of the machine are shared by all. */
const TERMINALS = 256;
/** Sockets of this family reach the host of the machine, past all networks (vsock(7)). */
const AF_VSOCK = 40;
/** The kernel takes 32 bits of the argument of a family. */
const INT = 0xffff_ffff;

const SECCOMP = {
  defaultAction: 'SCMP_ACT_ALLOW',
  architectures: ['SCMP_ARCH_X86_64', 'SCMP_ARCH_AARCH64'],
  syscalls: [
    { names: REFUSED, action: 'SCMP_ACT_ERRNO' },
    {
      names: ['socket'],
      action: 'SCMP_ACT_ERRNO',
      args: [{ index: 0, op: 'SCMP_CMP_MASKED_EQ', value: INT, valueTwo: AF_VSOCK }],
    },
  ],
};

const HIDDEN = [
  ...['/proc/acpi', '/proc/asound', '/proc/kcore', '/proc/keys', '/proc/latency_stats', '/proc/timer_list'],
  ...['/proc/timer_stats', '/proc/sched_debug', '/proc/scsi', '/proc/kmsg', '/sys/firmware', '/sys/kernel'],
];
const READ_ONLY = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

export interface Container {
  readonly hostname: string;
  /** The mounted root file system. */
  readonly root: string;
  /** The built daemon, which the container has at /opt/envd. */
  readonly daemon: string;
  readonly args: readonly string[];
}

/** The configuration of a container (github.com/opencontainers/runtime-spec, config.md). */
export function configuration({ hostname, root, daemon, args }: Container): object {
  const ids = [{ containerID: 0, hostID: FIRST_ID, size: IDS }];
  const tmpfs = (destination: string, ...options: readonly string[]) => ({
    destination,
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'nodev', ...options],
  });
  return {
    ociVersion: '1.0.0',
    hostname,
    process: {
      user: { uid: 0, gid: 0 },
      cwd: '/',
      args,
      env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'LANG=C.UTF-8'],
      capabilities: { bounding: CAPABILITIES, effective: CAPABILITIES, permitted: CAPABILITIES },
    },
    root: { path: root },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
      tmpfs('/dev', 'mode=755', 'size=64k'),
      tmpfs('/dev/shm', 'mode=1777', 'size=64m'),
      tmpfs('/run', 'mode=755', 'size=64m'),
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: [
          'nosuid',
          'noexec',
          'newinstance',
          'ptmxmode=0666',
          'mode=0620',
          'gid=5',
          `max=${TERMINALS}`,
        ],
      },
      { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
      // The daemon freezes its workload there. The namespace of cgroups shows it nothing else.
      {
        destination: '/sys/fs/cgroup',
        type: 'cgroup2',
        source: 'cgroup2',
        options: ['nosuid', 'noexec', 'nodev'],
      },
      { destination: '/opt/envd', type: 'bind', source: daemon, options: ['bind', 'ro', 'nosuid', 'nodev'] },
    ],
    linux: {
      namespaces: ['user', 'pid', 'network', 'ipc', 'uts', 'mount', 'cgroup'].map((type) => ({ type })),
      uidMappings: ids,
      gidMappings: ids,
      maskedPaths: HIDDEN,
      readonlyPaths: READ_ONLY,
      seccomp: SECCOMP,
    },
  };
}

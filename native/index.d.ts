/**
 * The interface of the native addon. Arguments and results are plain data; an absent value is `null`, never
 * `undefined`. A failed system call throws an error like Node's own (`code`, `errno` negative, `syscall`, `path`). Only
 * `src/daemon/linux/system/native.ts` imports the addon.
 */

// --- support/job.c -----------------------------------------------------------------------------------------

/**
 * Runs the calls that `begin` makes of functions for the thread pool as one job of the pool, in order. `begin` must not throw.
 */
export function runTogether(begin: () => void): void;

/**
 * Recalls the calls that run together: those that have not begun will not run and reject with ECANCELED, and those that have ended
 * settle now instead of when the last one ends.
 */
export function recallWaiting(): void;

// --- process/spawn.c --------------------------------------------------------------------------------------

/**
 * Receives the reports of `spawn`. Unused numbers are 0.
 * - `started`: the pid; the caller's ends of stdin, stdout and stderr (close-on-exec, non-blocking, owned by the caller; -1: none);
 *   and the pidfd, which is open until the next report. Without a terminal, this report comes 2 ms after the execve.
 * - `ran`: the same, in place of `started`, when the process ends within those 2 ms; the next report follows at once.
 * - `exited` or `signaled`: the exit code or the signal; microseconds of user and of system time.
 * - Any other event is the name of the step that failed, with the errno. It comes in place of all others.
 */
export type OnProcess = (event: string, a: number, b: number, c: number, d: number, e: number) => void;

/**
 * Starts a process in a new session. The program `envd-start` forks it, as a child of this process. So no thread waits for its
 * execve, which others can delay by signals, a freeze, or a file system that does not answer (docs/decisions/004-starts.md). A
 * failure leaves no process and no descriptor.
 *
 * `numbers` are u32, in this order: uid; gid; descriptor of the terminal (it becomes descriptors 0 to 2 and the controlling terminal,
 * and the caller keeps ownership; -1: pipes); whether descriptor 0 is a pipe (1) or /dev/null (0); nice value; level of the best-effort
 * I/O class; oom_score_adj; limit in milliseconds; number of arguments (at least 1); number of variables; whether the cgroup exists
 * already (1) or is created (0); most open descriptors, and the two halves of the most bytes of a file, the low one first (0: the limit
 * of this process; a hard limit is never raised); the supplementary groups.
 *
 * `strings` end with NUL each, in this order: the cgroup v2 directory to start in (empty: none; the caller removes it,
 * also after a failed start; below a frozen cgroup, the step `frozen` fails); the file (it is not looked up in PATH, and /bin/sh runs a
 * script without `#!`); the working directory (the user calls chdir(2)); the arguments; the variables as `NAME=value`.
 *
 * If the execve does not happen within the limit, which does not count while the cgroup is frozen, the process is killed, and the step
 * `execve` fails with ETIMEDOUT. If the addon was preloaded, the process gets the soft limit of descriptors that this process was
 * started with; Node has raised its own limit. Throws EINVAL when the number of strings is wrong.
 */
export function spawn(numbers: Buffer, strings: Buffer, onEvent: OnProcess): void;

// --- process/pipe_reader.c --------------------------------------------------------------------------------

/**
 * Reads many pipes and masters of terminals, which must be non-blocking, into one buffer. The number that `open` returns names a pipe
 * until its end of file or `close`.
 */
export interface PipeReader {
  /**
   * Starts to read `descriptor`, now or with the first `read`, and takes ownership of it. `cgroup` is that of its process, see `guarded`,
   * or ''. Throws epoll_ctl(2)'s errors.
   */
  open(descriptor: number, atOnce: boolean, cgroup: string): number;
  setPaused(pipe: number, paused: boolean): void;
  /**
   * Reads the bytes that are there, without waiting for an event, unless the pipe is paused; from a terminal at most 16 KiB. Returns
   * the number of bytes.
   */
  read(pipe: number): number;
  /** Closes the pipe and reports its end of file. */
  close(pipe: number): void;
  /** Lets the event loop exit while this pipe is open. */
  unref(pipe: number): void;
  /** The descriptor of a pipe that all bytes pass through on their way to `room`. */
  readonly transit: number;
}

/**
 * Creates a reader that lives as long as this Node environment. It calls `onRead` with the number of bytes in `room`, which are valid
 * only during that call. A length of 0 is the end of file: the write end is closed everywhere, and the reader has closed its descriptor.
 *
 * `room` begins with two numbers (u32): which pipe is being read, and how many of its bytes have reached `transit`; the caller sets the
 * second one to 0 when it has used the bytes. So a kill of this process loses no byte that has left a pipe: the byte is in `transit`, or
 * behind those numbers. Throws the errors of pipe2(2) and epoll_create1(2).
 */
export function pipeReader(room: Buffer, onRead: (pipe: number, length: number) => void): PipeReader;

// --- process/guard.c --------------------------------------------------------------------------------------

/**
 * Calls a function that does one system call on a pipe or a terminal of the process in this cgroup, and returns its result. A process
 * can keep these locked for good: the kernel copies under the lock, and a page may never come (userfaultfd(2), FUSE). When
 * the calls for a cgroup have waited for two seconds in all, a thread kills the cgroup and writes a line to the log.
 */
export function guarded<T>(cgroup: string, call: () => T): T;

// --- process/ready.c --------------------------------------------------------------------------------------

/**
 * Polls a descriptor. States are a sum of 1 (a read would not block), 2 (a write would not block) and 4 (the other side has ended). The
 * returned function sets the states to wait for: 0 (the initial value) waits for none, -1 ends the poll for good. `onReady` is called
 * while one of them holds, and once with 0 on an error, which ends the wait. The poll has a duplicate of the descriptor, so the caller
 * may close its own, and does not keep the event loop alive. Throws epoll_ctl(2)'s errors.
 */
export function pollDescriptor(
  descriptor: number,
  onReady: (events: number) => void,
): (events: number) => void;

/** Returns the number of unread bytes in a pipe. Source: FIONREAD, ioctl_tty(2) and pipe(7). */
export function pendingBytes(fd: number): number;

// --- process/terminal.c -----------------------------------------------------------------------------------

/**
 * Opens a pseudoterminal of this size, in character cells. Returns the descriptor of its master, which is non-blocking, close-on-exec
 * and owned by the caller, and the path of its slave. Throws posix_openpt(3)'s errors.
 */
export function openTerminal(
  columns: number,
  rows: number,
): { readonly master: number; readonly slave: string };

/** Sets the window size; the kernel sends SIGWINCH to the foreground process group. Source: TIOCSWINSZ, ioctl_tty(2). */
export function resizeTerminal(master: number, columns: number, rows: number): void;

// --- process/base64.c -------------------------------------------------------------------------------------

/**
 * Writes `source` as base64 with padding into `target` at `offset`, and returns the length of the text. Allocates nothing. Throws a
 * RangeError when the text does not fit. Source: RFC 4648.
 */
export function encodeBase64(source: Buffer, target: Buffer, offset: number): number;

// --- process/limits.c ---------------------------------------------------------------------------------

/**
 * Disables core dumps of this process, to files and to a piped program. Processes that `spawn` starts get the limit that this process
 * was started with. Source: core(5).
 */
export function forbidCoreDumps(): void;

/** Ends this process without waiting for its threads, for which Node would wait. Source: _exit(2). */
export function exitNow(code: number): void;

// --- files/place.c, files/walk.c, support/rights.c, support/mounts.c ----------------------------------------

/**
 * Sets which slow mounts the calls that follow may enter, at most 8, by their ids in proc_pid_mountinfo(5); at first there are none. A
 * mount is slow if its server may not answer, as with FUSE and NFS; all file systems are, except those of the kernel and of local disks.
 * A call that meets another slow mount rejects with EREMOTE and its id as `mount`, without a request to its server. A pool job keeps the
 * mounts that were set when it was started.
 */
export function allowMounts(ids: Uint32Array): void;

/**
 * Returns whether this process' mount namespace has no slow mount. Automounts do not count. Reads the table of mounts only after a change.
 */
export function allMountsAnswer(): boolean;

/** A name in an open directory. Names are bytes, one character per byte (Latin-1). */
export interface Place {
  /** The descriptor of the directory (O_PATH, close-on-exec), owned by the caller. */
  readonly directory: number;
  /** The path of missing directories between `directory` and the name; usually `''`. */
  readonly missing: string;
  /** The name; `.` is the directory itself, as for `/`. */
  readonly name: string;
  /** Whether the name is a magic link of /proc, which refers to an open file instead of a path. It is followed by opening it. */
  readonly isMagic: boolean;
  /** The user whose rights must be used, because a link of this user was followed; null: the daemon's rights. */
  readonly owner: number | null;
}

/**
 * Resolves an absolute path in a pool thread, component by component on descriptors, so that no component can be exchanged after it was
 * checked. With `follow`, a link as the last component is followed too. A link is followed with the rights of its owner, unless that is
 * root. Rejects with EACCES when the owner may not search a directory, or when another link behind it belongs to a third user, and with
 * open(2)'s errors. Source: path_resolution(7), credentials(7).
 */
export function openPlace(path: Buffer, follow: boolean): Promise<Place>;

/**
 * Opens a name in a directory with the rights of `owner`. A terminal does not become that of the daemon. A new file has the mode 0600,
 * and an unnamed one (O_TMPFILE) 0666 less the umask. Source: openat(2).
 */
export function openAt(directory: number, name: Buffer, flags: number, owner: number | null): Promise<number>;

/**
 * Opens `path` below a directory with the rights of `owner`. Throws ELOOP for a link on the path (with O_PATH, a link as the last
 * component is opened itself), EXDEV for a mount point unless `crosses`, and open(2)'s errors. On a kernel without openat2(2), it
 * enters mount points.
 */
export function openBelow(
  directory: number,
  path: Buffer,
  flags: number,
  crosses: boolean,
  owner: number | null,
): number;

/**
 * Creates the missing directories of `path` below a directory, with mode 0755. They belong to `uid` and `gid` from the start. If `owner`
 * is not null, they are created with the rights of that user and belong to it. Resolves with the last one (O_PATH). Rejects with ENOTDIR
 * when a name is a link or another kind of file.
 */
export function makeDirectories(
  directory: number,
  path: Buffer,
  uid: number,
  gid: number,
  owner: number | null,
): Promise<{ readonly directory: number; readonly isNew: boolean }>;

/** Rejects with EACCES or EPERM unless `owner` may create, remove or replace the name. Source: unlink(2). */
export function assertMayChange(directory: number, name: Buffer, owner: number): Promise<void>;

// --- files/entries.c, files/record.c ----------------------------------------------------------------------

/**
 * Describes the entry at the absolute `path` in a pool thread, without following a final symbolic link. Resolves with one record, whose
 * name is the path. The record has the extended attributes whose names start with `attributes`, as many as 64 KiB hold;
 * for a link, it has those of the target that the link's owner may read. Rejects with lstat(2)'s errors and those of `openPlace`.
 *
 * The layout of a record is little-endian and unaligned: u32 length of the record, mode (0: stat failed), mode of the link's target (0:
 * dangling; if the entry is not a link: its own mode), uid, gid, nanoseconds of the modification time; i64 seconds of the modification
 * time, size; u32 length of the name, length of the link's resolved path (0: cannot be resolved); u64 device, inode, `st_rdev`; u32
 * number of links, unused; the name; the resolved path. Attributes fill the rest: u32 length of the name, length of the value; the name;
 * the value.
 */
export function readEntry(path: Buffer, attributes: string): Promise<Buffer>;

export interface DirectoryRecords {
  readonly records: Buffer;
  /** The directory, open for reading and owned by the caller; -1 unless `isKept`. */
  readonly descriptor: number;
  /** The user whose rights must be used, as in `Place`. */
  readonly owner: number | null;
  /**
   * The id of a slow mount that an entry or the target of a link is on, and that `allowMounts` has not allowed; 0: there is none. Such
   * entries have the mode 0, and such links are described as links that cannot be resolved.
   */
  readonly mount: number;
}

/**
 * Describes all entries of a directory in a pool thread, with one record each, sorted by the bytes of their names. Entries that are
 * deleted during the call are left out. If `descriptor` is -1, `path` is absolute and resolved as `openPlace` does. Otherwise `path` is
 * below this open directory, it is opened with the rights of `owner`, and no component may be a link (ELOOP) or a mount (EXDEV). Rejects
 * with open(2)'s errors, and EOVERFLOW if the records or the names have more than 64 MiB.
 */
export function readDirectory(
  descriptor: number,
  path: Buffer,
  attributes: string,
  owner: number | null,
  isKept: boolean,
): Promise<DirectoryRecords>;

/**
 * Describes the next entries of an open directory, some hundred at most, for an archive, in a pool thread. Resolves with an empty buffer
 * at the end of the directory. The records are in the order of the directory and have all attributes. Instead of the resolved path of a
 * link they have its text. For a regular file of less than 64 KiB, one more pair may follow the attributes in their layout: `content`.
 * Rejects with getdents(2)'s errors.
 */
export function readNext(directory: number, owner: number | null): Promise<Buffer>;

// --- files/small_file.c -----------------------------------------------------------------------------------

export interface SmallFile {
  readonly inode: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
  readonly content: Buffer;
}

/**
 * Reads the regular file at an absolute path, if it has 1 to `limit` bytes, all of it is in the page cache, no part of the path is a
 * link, and the mount is not slow; otherwise returns null. It runs in the calling thread, because a pool job would cost more than the
 * system calls. Throws EINVAL or ENAMETOOLONG for an impossible path.
 */
export function readSmallFile(path: string | Buffer, limit: number): SmallFile | null;

/** Returns the inode, `dev:ino`, of a regular file that `readSmallFile` could find; otherwise null. Throws as that does. */
export function inodeNow(path: string | Buffer): string | null;

// --- files/transfer.c -------------------------------------------------------------------------------------

/** Returns another descriptor of the same open file or socket. It is close-on-exec unless `inherited`. Source: dup(2). */
export function duplicate(descriptor: number, inherited: boolean): number;

/**
 * Sends at most `length` bytes of an open file from `position` to a non-blocking socket, in a pool thread. It stops after 16 MiB, and when
 * the socket takes no more; after a large write, it first waits 2 ms for the socket, at most 4 times. Resolves with the number of bytes
 * sent, or -1 when the file has none at `position`. Rejects with sendfile(2)'s errors, such as EINVAL for a file that does not support
 * it. Both descriptors must stay open until the promise settles. Source: sendfile(2).
 */
export function sendFile(socket: number, source: number, position: number, length: number): Promise<number>;

/**
 * Moves at most `length` bytes between a pipe and a non-blocking descriptor. Returns their number: 0 at the end, -1 when it would block.
 * Throws splice(2)'s errors.
 */
export function splice(from: number, to: number, length: number): number;

/** Creates a pipe. Both ends are close-on-exec and owned by the caller. Throws pipe2(2)'s errors. */
export function createPipe(): { readonly write: number; readonly read: number };

// --- files/store.c -----------------------------------------------------------------------------------------

/**
 * Sets the owner of an unnamed temporary file (O_TMPFILE) and links it in an open directory. A watcher of the directory sees exactly
 * IN_CREATE, IN_ATTRIB and IN_MODIFY, and the file is complete at IN_CREATE. Both descriptors must stay open until the promise settles.
 * Rejects with EEXIST when the name exists, even as a dangling link. Source: linkat(2).
 */
export function publishFile(
  descriptor: number,
  directory: number,
  name: Buffer,
  uid: number,
  gid: number,
): Promise<void>;

/**
 * Stores a file in one pool job. `path` is absolute and resolved as `openPlace` does.
 *
 * With an empty `inode`, writes the content to an unnamed temporary file, and publishes it as `publishFile` does. If a regular file
 * exists, resolves with its inode, `dev:ino`.
 *
 * With that inode, overwrites the file if it still is the one at the path, and has no attributes whose names start with `prefix`:
 * reserves the space, sets the owner, clears set-id bits, writes and truncates.
 *
 * Resolves with true when the file is stored. Resolves with false when it cannot be stored in this way, for any reason: an error,
 * missing directories, links of other users than root, a file system without O_TMPFILE. Then nothing was changed, unless writing itself
 * failed.
 */
export function storeFile(
  path: string | Buffer,
  inode: string,
  content: Buffer,
  prefix: string,
  uid: number,
  gid: number,
): Promise<boolean | string>;

/**
 * Copies at most `length` bytes from the start of `source` to `targetOffset` of `target`, in the kernel. Resolves with the number of
 * bytes: less than `length` at the end of the source, and 0 for files of /proc. Both descriptors must stay open until the promise
 * settles. Rejects with copy_file_range(2)'s errors, such as EXDEV for two file systems.
 */
export function copyRange(
  source: number,
  target: number,
  targetOffset: number,
  length: number,
): Promise<number>;

/**
 * Allocates space for `length` bytes of a file from `offset` on, without changing its size and content. Does nothing on a file system
 * without fallocate. Rejects with ENOSPC after freeing what it has allocated. Source: fallocate(2), FALLOC_FL_KEEP_SIZE.
 */
export function reserveSpace(descriptor: number, offset: number, length: number): Promise<void>;

// --- files/open_attributes.c ------------------------------------------------------------------------------

/**
 * Reads the extended attributes of an open file whose names start with `prefix`, in a pool thread. They have the layout of the attributes
 * of a record (see `readEntry`). Rejects with listxattr(2)'s errors, and EOVERFLOW if they have more than 512 KiB.
 */
export function readAttributes(descriptor: number, prefix: string): Promise<Buffer>;

/**
 * Sets an extended attribute of an open file, or removes it when the value is null, in a pool thread. Rejects with
 * fsetxattr(2)'s and fremovexattr(2)'s errors.
 */
export function writeAttribute(
  descriptor: number,
  name: string | Buffer,
  value: Buffer | null,
): Promise<void>;

/**
 * Sets the times of an open file, in seconds since the epoch and nanoseconds. The file may also be a symbolic link that is open with
 * O_PATH. Source: utimensat(2), AT_EMPTY_PATH.
 */
export function writeTimes(
  descriptor: number,
  accessed: number,
  accessedNanoseconds: number,
  modified: number,
  modifiedNanoseconds: number,
): Promise<void>;

/** Reads the text of a symbolic link that is open with O_PATH. Source: readlinkat(2). */
export function readLink(descriptor: number): Promise<Buffer>;

// --- files/remove.c ---------------------------------------------------------------------------------------

/**
 * Removes the entry at an absolute path and everything below it, at most 1,000 entries, in a pool thread. The path is resolved as
 * `openPlace` does, and a final symbolic link is not followed. Resolves with 1 when nothing is left or was there, and with 0 when there is
 * more. Source: unlinkat(2).
 */
export function removeTree(path: string | Buffer): Promise<0 | 1>;

// --- watch/inotify.c --------------------------------------------------------------------------------------

export interface Inotify {
  /** Adds a watch, or changes the mask of an existing one. Returns its descriptor. Source: inotify(7). */
  add(path: Buffer, mask: number): number;
  /** Removes a watch. Ignores a descriptor that the kernel has already removed. */
  remove(descriptor: number): void;
  /** Takes the backlog, which consists of whole `struct inotify_event`s in order. Returns null when it is empty. */
  take(): Buffer | null;
  /** Ends the reader thread and closes the inotify descriptor. Later calls throw. */
  close(): void;
}

/**
 * Opens an inotify instance with its own reader thread, so that a busy event loop does not overflow the kernel's queue. The backlog of the
 * thread has at most 8 MiB; beyond that, the kernel's queue fills and reports IN_Q_OVERFLOW. `onReadable` is called when there are new
 * events after `take` has returned null. A change of the mounts is reported as an IN_UNMOUNT event of descriptor -1. The instance does not
 * keep the event loop alive. Throws inotify_init1(2)'s errors.
 */
export function openInotify(onReadable: () => void): Inotify;

/** Returns the next entries of an open directory as whole `struct linux_dirent64`s; null at the end. Throws getdents64(2)'s errors. */
export function nextNames(descriptor: number): Buffer | null;

// --- pause/cgroup.c ----------------------------------------------------------------------------------------

/**
 * Asks the kernel to freeze or to thaw every process in a cgroup v2 directory and below, by writing `cgroup.freeze`. Returns before that
 * is done. Throws ENOENT or ENODEV for a cgroup that was removed.
 */
export function setCgroupFrozen(directory: string, frozen: boolean): void;

// --- pause/address_space.c -------------------------------------------------------------------------------

/**
 * Reserves the free gaps of the address space (PROT_NONE, MAP_NORESERVE), so that the kernel packs later mappings, such as V8's heap
 * pages, into whole 2 MiB windows. It must be called before V8's heap grows.
 */
export function reserveAddressSpace(): void;

// --- pause/collapse.c ------------------------------------------------------------------------------------

export interface CollapseStatistics {
  /** The number of private anonymous writable regions that have at least one aligned 2 MiB window. */
  readonly regions: number;
  /** The number of aligned 2 MiB windows in them, which is the sum of the three counts below. */
  readonly chunks: number;
  readonly collapsed: number;
  readonly alreadyHuge: number;
  readonly skipped: number;
}

/**
 * Collapses the process' anonymous memory into huge pages, window by window, in a pool thread. When the caller sets the byte `cancelled`,
 * which it must keep until the promise settles, the remaining windows are skipped. Without CAP_SYS_ADMIN, a window that was huge before
 * counts as collapsed.
 */
export function collapseHeap(cancelled: Buffer): Promise<CollapseStatistics>;

/** Gives free heap pages back to the kernel. Returns true when there were any. Source: malloc_trim(3). */
export function trimHeap(): boolean;

// --- process/spawn.c ---------------------------------------------------------------------------------------

/**
 * Waits for the end of a process that another program has started, and reaps it if it is a child of this process. Reports `exited` or
 * `signaled` as `spawn` does, or `unknown` on kernels that do not report the exit (before Linux 6.15 with PIDFD_GET_INFO). Takes ownership
 * of `pidfd`; -1: opens one. Returns the pidfd, which is open until the report. Throws pidfd_open(2)'s errors.
 */
export function follow(pid: number, pidfd: number, onEvent: OnProcess): number;

// --- process/limits.c --------------------------------------------------------------------------------------

/**
 * Returns the soft limits of descriptors and of core files (in bytes) that started processes get; -1: no limit. If `descriptors` is not 0,
 * first sets both: an earlier program of this process hands its limits on, because it has changed its own. It must then be called after
 * `forbidCoreDumps`.
 */
export function childLimits(
  descriptors: number,
  core: number,
): { readonly descriptors: number; readonly core: number };

// --- process/signals.c -------------------------------------------------------------------------------------

/**
 * Lets the signals that stop or upgrade the daemon wait, also for a program that replaces this one. Such a program must be started with
 * this addon preloaded. With `hold` false, the signals that have waited arrive.
 */
export function holdSignals(hold: boolean): void;

/** Returns the process group of a process, as getpgid(2) does, or -1 when the process does not exist. */
export function processGroup(pid: number): number;

// --- memory/shared.c ---------------------------------------------------------------------------------------

/** Creates an empty file in memory. Returns its descriptor, which is close-on-exec. Throws memfd_create(2)'s errors. */
export function createMemory(): number;

/**
 * Maps the first `size` bytes of a file in memory. A change of the result changes the file at once, and access beyond the end of the file
 * ends this process. The mapping stays until this process ends. Throws mmap(2)'s errors.
 */
export function mapMemory(descriptor: number, size: number): Buffer;

// --- guest/guest.c -----------------------------------------------------------------------------------------

/**
 * Freezes or thaws the file system of the directory `path`, in a dedicated thread. A frozen file system can be read; writers sleep
 * uninterruptibly until it is thawed. Rejects with EBUSY when it is already frozen, EINVAL when it is not frozen, and EOPNOTSUPP when it
 * does not support freezing. Source: FIFREEZE and FITHAW, linux/fs.h.
 */
export function setFilesystemFrozen(path: string, frozen: boolean): Promise<void>;

/** Sets CLOCK_REALTIME to `seconds` and `nanoseconds` since the epoch. Source: clock_settime(2). */
export function setRealtimeClock(seconds: number, nanoseconds: number): void;

/**
 * Locks an open file until the descriptor and all its duplicates are closed. Throws EAGAIN while another open file description has the
 * lock. Source: flock(2).
 */
export function lockFile(descriptor: number): void;

/**
 * Makes the kernel's random generator use what was written to `descriptor`, one of its devices, at once. Throws EPERM without
 * CAP_SYS_ADMIN. Source: RNDRESEEDCRNG, linux/random.h.
 */
export function reseedRandom(descriptor: number): void;

/**
 * Connects a datagram socket to the Unix socket `address`; `@` begins an abstract name. Returns its descriptor, which is close-on-exec and
 * non-blocking. Throws connect(2)'s errors, and ENAMETOOLONG.
 */
export function connectDatagrams(address: string): number;

/** Opens a socket for sock_diag(7). Returns its descriptor, which is close-on-exec. Throws socket(2)'s errors. */
export function openSocketDiagnosis(): number;

// --- guest/sockets.c ---------------------------------------------------------------------------------------

/**
 * Opens a TCP socket that listens at a numeric address, `::` being all addresses of IPv4, too; returns its descriptor,
 * close-on-exec and non-blocking. With `limitsSilence`, idle connections to a peer that answers nothing break after 30 s. Throws
 * the errors of bind(2) and listen(2).
 */
export function listenAt(address: string, port: string, limitsSilence: boolean): number;

/** Where a socket listens, which gets the options that `listenAt` sets; null: it is no such socket. */
export function listeningAt(descriptor: number): { readonly address: string; readonly port: string } | null;

/**
 * Takes a waiting connection of a listening socket; returns its descriptor, close-on-exec, non-blocking, with TCP_NODELAY,
 * and owned by the caller, or null when none waits. Throws accept(2)'s errors, such as EMFILE.
 */
export function acceptConnection(listener: number): number | null;

/**
 * Opens a TCP connection to a numeric address; returns its descriptor, with the properties of `acceptConnection`. The
 * connection may still be under way: the descriptor becomes writable when it is there. Throws connect(2)'s errors.
 */
export function connectTo(address: string, port: string): number;

/** Sends the end of a connection, which can still receive. Throws shutdown(2)'s errors, ENOTCONN after a reset. */
export function endConnection(descriptor: number): void;

/**
 * A duplicate, close-on-exec and owned by the caller, of this process' descriptor of the connection between two numeric
 * addresses. Looks at 256 numbers on each side of the lowest free one; returns null when the connection is not among them.
 */
export function duplicateConnection(
  localAddress: string,
  localPort: string,
  remoteAddress: string,
  remotePort: string,
): number | null;

// --- support/message.c -------------------------------------------------------------------------------------

/**
 * Creates a queue of messages with descriptors, which holds some MiB (without CAP_NET_ADMIN: net.core.wmem_max). The queue exists as long
 * as somebody has its reading end. Both ends are close-on-exec and non-blocking. read(2) drops the first message with its descriptors.
 * Throws socketpair(2)'s errors.
 */
export function messageQueue(): { readonly write: number; readonly read: number };

/** Appends a message of at most 16 KiB and 8 descriptors (i32 each). Throws sendmsg(2)'s errors, such as EAGAIN for a full queue. */
export function sendMessage(write: number, bytes: Buffer, descriptors: Buffer): void;

/** Returns the first message, which stays in the queue. Its descriptors belong to the caller. Throws EAGAIN for an empty queue. */
export function peekMessage(read: number): { readonly bytes: Buffer; readonly descriptors: Buffer };

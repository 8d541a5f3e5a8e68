/**
 * The interface of the native addon. Arguments and results are plain data; an absent value is `null`, never
 * `undefined`. A failed system call throws an error like Node's own (`code`, `errno` negative, `syscall`, `path`). Only
 * `src/daemon/linux/system/native.ts` imports the addon.
 */

// --- support/job.c -----------------------------------------------------------------------------------------

/**
 * The calls that `begin` makes of functions which run in the thread pool become one job of it, in order. It must not
 * throw.
 */
export function runTogether(begin: () => void): void;

/**
 * Of all calls that run together, those that have not begun reject with ECANCELED, and will not; those that have ended
 * settle now, not when the last one has.
 */
export function recallWaiting(): void;

// --- process/spawn.c --------------------------------------------------------------------------------------

/**
 * What `spawn` reports: `started` (pid; the caller's ends of stdin, stdout and stderr: close-on-exec, blocking, owned
 * by the caller; -1: none; the pidfd, which is open until the next report), without a terminal 2 ms after the execve,
 * or `ran` in place of it when it ends before, and the next report follows at once; then `exited` or `signaled` (exit
 * code or signal; microseconds of user and of system time; peak resident memory in KiB); or else the step that failed
 * (errno). Unused numbers are 0.
 */
export type OnProcess = (event: string, a: number, b: number, c: number, d: number, e: number) => void;

/**
 * Starts a process in a new session. A small program of our own, `envd-start`, forks it, as a child of this process: no
 * thread waits for its execve, which others can delay by signals, a freeze, or a file system that does not answer
 * (docs/decisions/004-starts.md). After a failure no process and no descriptor is left.
 *
 * `numbers`: u32 each, in this order: uid, gid, descriptor of the terminal (becomes descriptors 0 to 2 and the
 * controlling terminal; the caller keeps ownership; -1: pipes), whether descriptor 0 is a pipe and not /dev/null, nice
 * value, level of the best-effort I/O class, oom_score_adj, limit in milliseconds, number of arguments (at least 1) and
 * of variables; then the supplementary groups.
 *
 * `strings`, each ended by NUL: the cgroup v2 directory to create and to start in (empty: none; the caller removes it,
 * also after a failed start; below a frozen cgroup the start fails with the step `frozen`); the file (not looked up in
 * PATH; a script without `#!` is run by /bin/sh); the working directory (chdir(2) is called as the user); the arguments;
 * the variables as `NAME=value`.
 *
 * If the execve does not happen within the limit, which is not counted while the cgroup is frozen, the process is killed,
 * and the step `execve` fails with ETIMEDOUT. The process gets the soft limit of descriptors that this process was started
 * with, if the addon was preloaded (Node raises its own). Throws EINVAL when the number of strings is wrong.
 */
export function spawn(numbers: Buffer, strings: Buffer, onEvent: OnProcess): void;

// --- process/pipe_reader.c --------------------------------------------------------------------------------

/**
 * Reads many pipes and masters of terminals, which must be non-blocking, into one buffer. Each is named by the number
 * that `open` returned, valid until its end of file or `close`.
 */
export interface PipeReader {
  /** Starts to read `descriptor`, at once or by the first `read`, and takes ownership of it. Throws epoll_ctl(2)'s errors. */
  open(descriptor: number, atOnce: boolean): number;
  setPaused(pipe: number, paused: boolean): void;
  /**
   * Reads what is there, without waiting for an event, unless the pipe is paused; of a terminal 16 KiB at most. Returns the
   * number of bytes.
   */
  read(pipe: number): number;
  /** As at its end of file, which is told. */
  close(pipe: number): void;
  /** Lets the event loop exit while this pipe is open. */
  unref(pipe: number): void;
  /** Descriptor of a pipe that bytes pass through on their way from a pipe to `room`. */
  readonly transit: number;
}

/**
 * Creates a reader that lives as long as this Node environment. `onRead` is called with the number of bytes in `room`,
 * which are valid during that call only. A length of 0 is end of file: the write end is closed everywhere, and the
 * reader has closed its descriptor.
 *
 * `room` begins with the number of the pipe that is being read (u32) and how many of its bytes have reached `transit` (u32;
 * the caller sets it to 0 when it has used them), so that after a kill of this process nothing that has left a pipe is lost:
 * it is in `transit`, or else behind those numbers. Throws the errors of pipe2(2) and epoll_create1(2).
 */
export function pipeReader(room: Buffer, onRead: (pipe: number, length: number) => void): PipeReader;

// --- process/ready.c --------------------------------------------------------------------------------------

/**
 * Calls back while a descriptor is in a state that is waited for, with a sum of 1: a read would not block, 2: a write
 * would not block, 4: the other side has ended; or with 0 on its error, then nothing is waited for any more. Returns a
 * function that sets such a sum: 0, as at first, is nothing; -1 ends it for good. Holds a duplicate of the descriptor,
 * so the caller may close its own. Does not keep the event loop alive. Throws epoll_ctl(2)'s errors.
 */
export function pollDescriptor(
  descriptor: number,
  onReady: (events: number) => void,
): (events: number) => void;

/** Number of unread bytes in a pipe. Source: FIONREAD, ioctl_tty(2) and pipe(7). */
export function pendingBytes(fd: number): number;

// --- process/terminal.c -----------------------------------------------------------------------------------

/**
 * Opens a pseudoterminal of this size, in character cells; returns the descriptor of its master, non-blocking, close-on-exec and
 * owned by the caller, and the path of its slave. Throws posix_openpt(3)'s errors.
 */
export function openTerminal(
  columns: number,
  rows: number,
): { readonly master: number; readonly slave: string };

/** Sets the window size; the kernel sends SIGWINCH to the foreground process group. Source: TIOCSWINSZ, ioctl_tty(2). */
export function resizeTerminal(master: number, columns: number, rows: number): void;

// --- process/base64.c -------------------------------------------------------------------------------------

/**
 * Writes `source` as base64 (RFC 4648, with padding) into `target` at `offset`; returns the length of the text.
 * Allocates nothing. Throws a RangeError when the text does not fit.
 */
export function encodeBase64(source: Buffer, target: Buffer, offset: number): number;

// --- process/limits.c ---------------------------------------------------------------------------------

/**
 * Disables core dumps of this process, both to files and to a piped program (core(5)). Processes that `spawn` starts
 * get the limit that this process was started with.
 */
export function forbidCoreDumps(): void;

/** Ends this process without waiting for its threads, as Node does. Source: _exit(2). */
export function exitNow(code: number): void;

// --- files/place.c, files/walk.c, support/rights.c, support/mounts.c ----------------------------------------

/**
 * Sets which mounts the calls that follow may enter although their servers may not answer (FUSE, NFS, all but the
 * kernel's own and local disks'): at most 8, by their ids in proc_pid_mountinfo(5). At first none. A call that
 * meets another one rejects with EREMOTE and its id as `mount`, without a request to its server. Pool jobs keep what was
 * set when they were started.
 */
export function allowMounts(ids: Uint32Array): void;

/**
 * Whether all mounts of this process' namespace answer at once: there is no FUSE, NFS or the like. Automounts are not
 * counted. Reads the table of mounts only after a change.
 */
export function allMountsAnswer(): boolean;

/** A name in an open directory. Names are bytes, one character per byte (Latin-1). */
export interface Place {
  /** Descriptor of the directory (O_PATH, close-on-exec), owned by the caller. */
  readonly directory: number;
  /** Path of missing directories between `directory` and the name; usually `''`. */
  readonly missing: string;
  /** `.` for the directory itself, as for `/`. */
  readonly name: string;
  /**
   * The name is a magic link of /proc, which refers to an open file and not to a path; it is followed by opening it.
   */
  readonly isMagic: boolean;
  /** The user whose rights must be used, because a link owned by this user was followed; null: the daemon's. */
  readonly owner: number | null;
}

/**
 * Resolves an absolute path in a pool thread, component by component on descriptors, so that no component can be
 * exchanged after it was checked. `follow`: follow the last component too if it is a link. A link is followed with the
 * rights of its owner, unless that is root. Rejects with EACCES when the owner may not search a directory, or when
 * another link behind it belongs to a third user; otherwise with open(2)'s errors. Source: path_resolution(7),
 * credentials(7).
 */
export function openPlace(path: Buffer, follow: boolean): Promise<Place>;

/** Opens a name in a directory with the rights of `owner`; mode 0666 less the umask. Source: openat(2). */
export function openAt(directory: number, name: Buffer, flags: number, owner: number | null): Promise<number>;

/**
 * Opens `path` below a directory with the rights of `owner`, without following any link (ELOOP; with O_PATH a link as
 * the last component is opened itself). Unless `crosses`, a mount point on the path is EXDEV. Without openat2(2) it is
 * entered. Throws open(2)'s errors.
 */
export function openBelow(
  directory: number,
  path: Buffer,
  flags: number,
  crosses: boolean,
  owner: number | null,
): number;

/**
 * Creates the missing directories of `path` below a directory, with mode 0755, owned by `uid` and `gid` from the start;
 * if `owner` is not null, with the rights of that user and owned by it. Resolves with the last one (O_PATH). Rejects
 * with ENOTDIR when one of the names is a link or another kind of file.
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
 * Describes the entry at the absolute `path` in a pool thread, without following a final symbolic link: one record,
 * whose name is the path. Includes the extended attributes whose names start with `attributes`, of a link those of its
 * target that the link's owner may read. Rejects with lstat(2)'s errors and as `openPlace`.
 *
 * Layout of a record, little-endian, unaligned: u32 length of the record, mode (0: stat failed), mode of the link's
 * target (0: dangling; for an entry that is no link: its own mode), uid, gid, nanoseconds of the modification time; i64
 * seconds of the modification time, size; u32 length of the name, length of the link's resolved path (0: cannot be
 * resolved); u64 device, inode, `st_rdev`; u32 number of links, unused; the name; the resolved path. Attributes fill
 * the rest: u32 length of the name, length of the value; the name; the value.
 */
export function readEntry(path: Buffer, attributes: string): Promise<Buffer>;

export interface DirectoryRecords {
  readonly records: Buffer;
  /** The directory, open for reading, owned by the caller; -1 unless `isKept`. */
  readonly descriptor: number;
  /** See `Place`. */
  readonly owner: number | null;
  /**
   * The id of a mount that an entry, or the target of a link, is on and that was not allowed (`allowMounts`): such entries
   * have the mode 0, such links are described as ones that cannot be resolved. 0: there is none.
   */
  readonly mount: number;
}

/**
 * Describes all entries of a directory in a pool thread: one record each, sorted by the bytes of their names. Entries that
 * are deleted during the call are left out. `descriptor` -1: `path` is absolute, and resolved as by `openPlace`. Otherwise it is
 * below this open directory, and no component may be a link (ELOOP) or a mount (EXDEV); it is opened with the rights of `owner`.
 * Rejects with open(2)'s errors.
 */
export function readDirectory(
  descriptor: number,
  path: Buffer,
  attributes: string,
  owner: number | null,
  isKept: boolean,
): Promise<DirectoryRecords>;

/**
 * Describes the next entries of an open directory in a pool thread, some hundred at most, for an archive; an empty
 * buffer at the end of the directory. Records in the order of the directory, with all attributes. Instead of the
 * resolved path of a link its text. After the attributes and in their layout, for a regular file, what is known: of less
 * than 64 KiB its `content`; of a larger file with holes the `map` of the ranges that hold data, i64 offset and length
 * each. Rejects with getdents(2)'s errors.
 */
export function readNext(directory: number, owner: number | null): Promise<Buffer>;

// --- files/store.c ----------------------------------------------------------------------------------------

/**
 * Stores small new files in an open directory in a pool thread, each unnamed until it has content, owner, mode and time.
 * Stops at the first that cannot be stored in this way, for whatever reason, such as a name that exists; resolves with
 * the number of those before.
 *
 * Layout of a file, little-endian, unaligned: i64 seconds of the modification time; u32 nanoseconds, mode, uid, gid,
 * length of the name with its NUL, length of the content; the name; the content.
 */
export function storeFiles(directory: number, files: Buffer): Promise<number>;

// --- files/small_file.c -----------------------------------------------------------------------------------

export interface SmallFile {
  readonly inode: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
  readonly content: Buffer;
}

/**
 * Reads the regular file at an absolute path if it has 1 to `limit` bytes, all of it is in the page cache, no part of the
 * path is a link, and the file system is one that answers at once; otherwise null. A pool job costs more than the system
 * calls. Throws EINVAL or ENAMETOOLONG for an impossible path.
 */
export function readSmallFile(path: string | Buffer, limit: number): SmallFile | null;

// --- files/transfer.c -------------------------------------------------------------------------------------

/** A descriptor of the same open file or socket: dup(2). Unless `inherited`, it is close-on-exec. */
export function duplicate(descriptor: number, inherited: boolean): number;

/**
 * Sends at most `length` bytes of an open file from `position` to a non-blocking socket, in a pool thread: sendfile(2).
 * Returns when the socket takes no more (after a large write: for 2 ms, 4 times at most) or after 16 MiB. Resolves with
 * the number of bytes moved, or -1 when the file has none at `position`. Rejects with sendfile(2)'s errors: EINVAL for a
 * file that does not support it. Both descriptors must stay open until the promise is settled.
 */
export function sendFile(socket: number, source: number, position: number, length: number): Promise<number>;

/**
 * Moves at most `length` bytes between a pipe and a non-blocking descriptor: splice(2). Returns their number, 0 at the
 * end, -1 when it would block. Throws splice(2)'s errors.
 */
export function splice(from: number, to: number, length: number): number;

/** A pipe, both ends close-on-exec and owned by the caller. Throws pipe2(2)'s errors. */
export function createPipe(): { readonly write: number; readonly read: number };

// --- files/store.c -----------------------------------------------------------------------------------------

/**
 * Sets the owner of an unnamed temporary file (O_TMPFILE) and links it in an open directory. A watcher of the directory
 * sees exactly IN_CREATE, IN_ATTRIB, IN_MODIFY; the file is complete at IN_CREATE. Both descriptors must stay open
 * until the promise is settled. Rejects with EEXIST when the name exists, even as a dangling link. Source: linkat(2).
 */
export function publishFile(
  descriptor: number,
  directory: number,
  name: Buffer,
  uid: number,
  gid: number,
): Promise<void>;

/**
 * Stores a file in one pool job; resolves `path`, which is absolute, as `openPlace` does.
 *
 * `inode` is empty: writes a new file to an unnamed temporary one and publishes it as `publishFile` does. If a regular
 * file exists, resolves with its inode, `dev:ino`.
 *
 * With that inode: overwrites the file if it is still this one: reserves the space, sets the owner, clears set-id bits,
 * writes and truncates. Not if the file has attributes whose names start with `prefix`.
 *
 * Resolves with true when the file is stored, and with false when it cannot be stored in this way, for whatever reason:
 * an error, missing directories, links of other users than root, a file system without O_TMPFILE. Then it has changed
 * nothing, unless writing itself has failed.
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
 * Copies at most `length` bytes from the start of `source` to `targetOffset` of `target`, in the kernel; resolves with the
 * number of bytes copied, less than `length` at the end of the source, and 0 for files of /proc. Both descriptors must
 * stay open until the promise is settled. Rejects with copy_file_range(2)'s errors: EXDEV on two file systems.
 */
export function copyRange(
  source: number,
  target: number,
  targetOffset: number,
  length: number,
): Promise<number>;

/**
 * Allocates space for `length` bytes of a file from `offset` on; its size and content do not change. Rejects with ENOSPC after
 * freeing what was allocated. Does nothing on a file system without fallocate.
 * Source: fallocate(2), FALLOC_FL_KEEP_SIZE.
 */
export function reserveSpace(descriptor: number, offset: number, length: number): Promise<void>;

// --- files/open_attributes.c ------------------------------------------------------------------------------

/**
 * Reads the extended attributes of an open file whose names start with `prefix`, in a pool thread, in the layout of the
 * attributes of a record (see `readEntry`). Rejects with listxattr(2)'s errors.
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
 * Sets the times of an open file of any kind, also of a symbolic link that is open with O_PATH, in nanoseconds since
 * the epoch. Source: utimensat(2), AT_EMPTY_PATH.
 */
export function writeTimes(descriptor: number, accessed: bigint, modified: bigint): Promise<void>;

/** Reads the text of a symbolic link that is open with O_PATH. Source: readlinkat(2). */
export function readLink(descriptor: number): Promise<Buffer>;

// --- files/remove.c ---------------------------------------------------------------------------------------

/**
 * Removes the entry at an absolute path, resolved as by `openPlace`, and everything below it in a pool thread; 1,000 entries
 * at most. A final symbolic link is not followed. Resolves with 1 when nothing is left, also when nothing was there, and
 * with 0 when there is more. Source: unlinkat(2).
 */
export function removeTree(path: string | Buffer): Promise<0 | 1>;

// --- watch/inotify.c --------------------------------------------------------------------------------------

export interface Inotify {
  /** Adds a watch, or changes the mask of an existing one; returns its descriptor. Source: inotify(7). */
  add(path: Buffer, mask: number): number;
  /** Removes a watch; a descriptor that the kernel has already removed is ignored. */
  remove(descriptor: number): void;
  /** Takes the backlog: whole `struct inotify_event`s in order, or null when it is empty. */
  take(): Buffer | null;
  /** Ends the reader thread and closes the inotify descriptor; calls afterwards throw. */
  close(): void;
}

/**
 * Opens an inotify instance with its own reader thread, so that a busy event loop does not overflow the kernel's queue.
 * The backlog of the thread is at most 8 MiB; beyond that the kernel's queue fills and reports IN_Q_OVERFLOW.
 * `onReadable` is called when there are new events after `take` has returned null. A change of the mounts is an IN_UNMOUNT
 * event of descriptor -1. Does not keep the event loop alive.
 * Throws inotify_init1(2)'s errors.
 */
export function openInotify(onReadable: () => void): Inotify;

/**
 * Reads the next entries of an open directory: whole `struct linux_dirent64`s; null at the end. Throws getdents64(2)'s
 * errors.
 */
export function nextNames(descriptor: number): Buffer | null;

// --- pause/cgroup.c ----------------------------------------------------------------------------------------

/**
 * Writes `cgroup.freeze` of a cgroup v2 directory: requests that every process in it and below be frozen, or thawed. Returns
 * before they are. Throws ENOENT or ENODEV for a cgroup that has been removed.
 */
export function setCgroupFrozen(directory: string, frozen: boolean): void;

// --- pause/address_space.c -------------------------------------------------------------------------------

/**
 * Reserves the free gaps of the address space (PROT_NONE, MAP_NORESERVE), so that the kernel packs later
 * mappings, V8's heap pages among them, into whole 2 MiB windows. To be called once, before V8's heap grows.
 */
export function reserveAddressSpace(): void;

// --- pause/collapse.c ------------------------------------------------------------------------------------

export interface CollapseStatistics {
  /** Private anonymous writable regions that hold at least one aligned 2 MiB window. */
  readonly regions: number;
  /** Aligned 2 MiB windows in them; the sum of the three counts below. */
  readonly chunks: number;
  readonly collapsed: number;
  readonly alreadyHuge: number;
  readonly skipped: number;
}

/**
 * Collapses the process' anonymous memory into huge pages, window by window, in a pool thread. `cancelled`, one byte, must be
 * kept until the promise is settled; once it is not 0, the remaining windows are counted as skipped. Without CAP_SYS_ADMIN a
 * window that was huge before counts as collapsed.
 */
export function collapseHeap(cancelled: Buffer): Promise<CollapseStatistics>;

/** Returns free heap pages to the kernel: `malloc_trim(3)`. True when memory was released. */
export function trimHeap(): boolean;

// --- process/spawn.c ---------------------------------------------------------------------------------------

/**
 * Waits for the end of a process that another program has started, and reaps it if it is a child of this process: `exited`
 * or `signaled` is reported as by `spawn`; `unknown` when the kernel does not tell (PIDFD_GET_INFO, Linux 6.15). Takes
 * ownership of `pidfd`; -1: opens one. Returns the pidfd, which is open until the report. Throws
 * pidfd_open(2)'s errors.
 */
export function follow(pid: number, pidfd: number, onEvent: OnProcess): number;

// --- process/limits.c --------------------------------------------------------------------------------------

/**
 * The soft limits of descriptors and of core files, in bytes, that processes get; -1: none. Before, unless
 * `descriptors` is 0, sets them (-1: none) to those of an earlier program of this process, which has changed its own; after
 * `forbidCoreDumps`.
 */
export function childLimits(
  descriptors: number,
  core: number,
): { readonly descriptors: number; readonly core: number };

// --- memory/shared.c ---------------------------------------------------------------------------------------

/** Creates an empty file in memory; returns its descriptor, close-on-exec. Throws memfd_create(2)'s errors. */
export function createMemory(): number;

/**
 * Maps the first `size` bytes of a file in memory; changes of the result are changes of the file, at once. Access beyond
 * the end of the file ends this process. Never unmapped. Throws mmap(2)'s errors.
 */
export function mapMemory(descriptor: number, size: number): Buffer;

// --- guest/guest.c -----------------------------------------------------------------------------------------

/**
 * Freezes or thaws the file system of the directory `path`, in a dedicated thread. A frozen file system can be read;
 * writers sleep uninterruptibly until it is thawed. Rejects with EBUSY when it is already frozen, EINVAL when it is
 * not frozen, EOPNOTSUPP when it does not support freezing. Source: FIFREEZE and FITHAW, linux/fs.h.
 */
export function setFilesystemFrozen(path: string, frozen: boolean): Promise<void>;

/** Sets CLOCK_REALTIME to `seconds` and `nanoseconds` since the epoch. Source: clock_settime(2). */
export function setRealtimeClock(seconds: number, nanoseconds: number): void;

/**
 * Locks an open file, until the descriptor and all its duplicates are closed. Throws EAGAIN while it is locked through
 * another opening. Source: flock(2).
 */
export function lockFile(descriptor: number): void;

/**
 * Makes the kernel's random generator, of which `descriptor` is a device, use at once what was written to it. Throws EPERM
 * without CAP_SYS_ADMIN. Source: RNDRESEEDCRNG, linux/random.h.
 */
export function reseedRandom(descriptor: number): void;

/**
 * Opens a datagram socket to the Unix socket `address` (`@` begins an abstract name), close-on-exec and non-blocking; returns
 * its descriptor. Throws connect(2)'s errors, and ENAMETOOLONG.
 */
export function connectDatagrams(address: string): number;

/** Opens a socket for sock_diag(7), close-on-exec; returns its descriptor. Throws socket(2)'s errors. */
export function openSocketDiagnosis(): number;

// --- guest/sockets.c ---------------------------------------------------------------------------------------

/**
 * Opens a TCP socket that listens at a numeric address, `::` being all addresses of IPv4, too; returns its descriptor,
 * close-on-exec and non-blocking. With `limitsSilence`, connections to a peer that is silent break after at most 60 s. Throws
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
 * Creates a queue of messages with descriptors, for up to some MiB (net.core.wmem_max without CAP_NET_ADMIN). It lives as
 * long as somebody has its reading end. Both ends are close-on-exec and non-blocking; read(2) drops the first message
 * with its descriptors. Throws socketpair(2)'s errors.
 */
export function messageQueue(): { readonly write: number; readonly read: number };

/** Appends a message: at most 16 KiB and 8 descriptors, an Int32Array. Throws sendmsg(2)'s errors: EAGAIN when it is full. */
export function sendMessage(write: number, bytes: Buffer, descriptors: Buffer): void;

/** The first message, which stays in the queue; its descriptors belong to the caller. Throws EAGAIN when it is empty. */
export function peekMessage(read: number): { readonly bytes: Buffer; readonly descriptors: Buffer };

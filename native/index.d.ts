/**
 * The whole contract of the native addon: plain data crosses it, `null` stands for "none", never `undefined`.
 * System calls that fail throw an error shaped like Node's own (`code`, `errno` negative, `syscall`, `path`).
 * Only `src/daemon/os/native.ts` imports it.
 */

// --- process/spawn.c --------------------------------------------------------------------------------------

export interface SpawnOptions {
  /** Absolute or relative to `cwd`; not looked up in PATH. A script without `#!` is run by /bin/sh. */
  readonly file: string;
  /** argv, the first included. */
  readonly args: readonly string[];
  /** `NAME=value` each. */
  readonly env: readonly string[];
  /** Entered as the user. */
  readonly cwd: string;
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
  /** Descriptor of a terminal that becomes 0, 1 and 2, and the controlling one; null for pipes. It stays the caller's. */
  readonly terminal: number | null;
  /** Without a terminal: whether 0 is a pipe, or /dev/null. */
  readonly stdin: boolean;
  /**
   * The cgroup v2 directory to make and to start in, or null. It is the caller's to remove, also after a failure. Below
   * a frozen one the start fails at the step `frozen`.
   */
  readonly cgroup: string | null;
  /** Nice value, -20 to 19. */
  readonly nice: number;
  /** Level of the best-effort I/O class, 0 to 7. */
  readonly ioPriority: number;
  readonly oomScoreAdj: number;
}

export interface ProcessExit {
  /** Exit code, or null when a signal ended the process. */
  readonly code: number | null;
  /** Signal number, or null. */
  readonly signal: number | null;
  readonly userMicros: number;
  readonly systemMicros: number;
  /** Peak resident memory in KiB; not less than the daemon's own at the start, whose memory a vfork child shares. */
  readonly maxRssKib: number;
}

/** The other ends of its pipes are close-on-exec, blocking, and the caller's; null where there is none. */
export interface StartedProcess {
  readonly pid: number;
  readonly stdin: number | null;
  readonly stdout: number | null;
  readonly stderr: number | null;
}

/**
 * Starts a process in a session of its own: clone3(CLONE_VM | CLONE_VFORK | CLONE_PIDFD [| CLONE_INTO_CGROUP]),
 * from a pool thread, since that thread sleeps until the child's execve (a cwd on a mount that hangs…).
 * Pipes are made there, too. The soft limit of descriptors is the one that this process was started with, when the addon
 * was preloaded; Node has raised its own. Rejects with `step` (what the child was doing) beside `code` and `errno`; nothing is
 * left behind then. `onExit` is called once, after the process has been reaped, always after the promise.
 */
export function spawn(options: SpawnOptions, onExit: (exit: ProcessExit) => void): Promise<StartedProcess>;

// --- process/pipe.c ---------------------------------------------------------------------------------------

/** Bytes that can be read from a pipe now: FIONREAD, ioctl_tty(2) and pipe(7). */
export function pendingBytes(fd: number): number;

// --- process/pipe_reader.c --------------------------------------------------------------------------------

/** Pipes that are read into one buffer; each by the number that `open` gave it, until its end has been told. */
export interface PipeReader {
  /** Reads from now on; `descriptor` is the reader's then, made non-blocking. Throws epoll_ctl(2)'s errors. */
  open(descriptor: number): number;
  setPaused(pipe: number, paused: boolean): void;
  /** Lets the event loop end while this pipe is open. */
  unref(pipe: number): void;
}

/**
 * Reads pipes into `room` for as long as this environment lives. `onRead` is called with the length of what is there, for
 * that call only, and with 0 at the end, when nobody holds the writing end any more; its descriptor is closed then.
 */
export function pipeReader(room: Buffer, onRead: (pipe: number, length: number) => void): PipeReader;

// --- process/ready.c --------------------------------------------------------------------------------------

/**
 * Calls back once, as soon as writing to `descriptor` would not block or can only fail; never after the returned
 * function has been called. The descriptor may be closed meanwhile, by the caller of that function only: until then the
 * wait holds a duplicate. Does not keep the process alive. Throws epoll_ctl(2)'s errors.
 */
export function awaitWritable(descriptor: number, onWritable: () => void): () => void;

/** The same for reading. */
export function awaitReadable(descriptor: number, onReadable: () => void): () => void;

// --- process/base64.c -------------------------------------------------------------------------------------

/**
 * Writes `source` as base64 (RFC 4648, with padding) into `target` from `offset` on; returns the length of the text.
 * Makes no garbage. Throws a RangeError when there is no room.
 */
export function encodeBase64(source: Buffer, target: Buffer, offset: number): number;

// --- process/leaves.c -------------------------------------------------------------------------------------

/**
 * Removes empty directories in a pool thread; resolves with those that are still there, because something is in them or
 * they cannot be removed. Source: rmdir(2).
 */
export function removeDirectories(options: { readonly paths: readonly string[] }): Promise<string[]>;

// --- process/core_dumps.c ---------------------------------------------------------------------------------

/**
 * Makes sure that no core dump is made of this process, whatever the kernel does with cores (core(5)). What
 * `spawn` starts has the limit that the process was started with.
 */
export function forbidCoreDumps(): void;

// --- files/entries.c, files/record.c ----------------------------------------------------------------------

/**
 * Describes what is at `path` in a pool thread, without following the last link: one record, whose name is the
 * path. Of the file's attributes, those whose names start with `attributes` are told. Rejects as lstat(2) fails.
 *
 * A record, little-endian, unaligned: u32 length of the record, mode (0: could not be looked at), mode of the
 * link's target (0: none; of all others the mode again), uid, gid, nanoseconds of the modification; i64 seconds
 * of it, size; u32 length of the name, length of the link's resolved path (0: cannot be resolved); the name; the
 * resolved path; then, up to the record's end, attributes: u32 length of the name, length of the value; both.
 */
export function readEntry(path: Buffer, attributes: string): Promise<Buffer>;

/**
 * Describes all entries of a directory in a pool thread: one record each, sorted by the bytes of their names.
 * Entries that vanish meanwhile are left out. Rejects as open(2) fails, with ENOTDIR for a link too.
 */
export function readDirectory(path: Buffer, attributes: string): Promise<Buffer>;

// --- files/small_file.c -----------------------------------------------------------------------------------

export interface SmallFile {
  /** `st_mode`, inode(7). */
  readonly mode: number;
  /** In bytes, as the file claims. */
  readonly size: number;
  readonly inode: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
  /** Null for what is no regular file, or has more than was asked for. */
  readonly content: Buffer | null;
}

/**
 * Looks at the file at `path`, following links, and reads it whole when it is a regular one of at most `limit`
 * bytes: at once when the kernel has all of it in memory, else in one trip to a pool thread, since the way there
 * costs more than the system calls. Rejects as stat(2), open(2) and read(2) fail.
 */
export function readSmallFile(path: string, limit: number): SmallFile | Promise<SmallFile>;

// --- files/receive.c --------------------------------------------------------------------------------------

/** A descriptor of the same open file or socket, close-on-exec: dup(2). */
export function duplicate(descriptor: number): number;

/**
 * Moves what arrives at a socket to the file `target` at `position`, or drops it when that is null, in a pool thread: at
 * most `length` bytes, until nothing is there or, from a fast sender, has come for two milliseconds, or 16 MiB have.
 * Resolves with the bytes moved. Rejects with the errors of recv(2), ECONNRESET when the peer sends no more, and of
 * pwrite(2); what was taken from the socket and not written is lost then. Both descriptors must stay open meanwhile.
 */
export function receive(
  socket: number,
  target: number | null,
  position: number,
  length: number,
): Promise<number>;

// --- files/publish.c --------------------------------------------------------------------------------------

/**
 * Gives a file that was opened with O_TMPFILE its owner and its name. A watcher of the directory sees exactly
 * IN_CREATE, IN_ATTRIB, IN_MODIFY, and the file complete at the first. The descriptor must stay open meanwhile.
 * Rejects with EEXIST when the name is taken, by a dangling link too. Source: linkat(2).
 */
export function publishFile(descriptor: number, path: string, uid: number, gid: number): Promise<void>;

// --- files/copy.c -----------------------------------------------------------------------------------------

/**
 * Copies at most `length` bytes from the start of `source` to `targetOffset` of `target`, kernel-side where the
 * file systems can; resolves with the bytes copied, fewer when the source ended. Both descriptors must stay open
 * meanwhile. Source: copy_file_range(2).
 */
export function copyRange(
  source: number,
  target: number,
  targetOffset: number,
  length: number,
): Promise<number>;

/**
 * Makes sure that the first `length` bytes of a file can be written without running out of space; its size and
 * content stay. Rejects with ENOSPC, giving back what it took; does nothing where the file system cannot reserve.
 * Source: fallocate(2), FALLOC_FL_KEEP_SIZE.
 */
export function reserveSpace(descriptor: number, length: number): Promise<void>;

// --- files/attributes.c -----------------------------------------------------------------------------------

/**
 * Gives `target` the owner, mode, extended attributes and times of `source`, in a pool thread; of links, the
 * link's own. Attributes and owners that the target's file system has no place for are lost.
 */
export function copyAttributes(source: Buffer, target: Buffer): Promise<void>;

// --- files/open_attributes.c ------------------------------------------------------------------------------

/**
 * Reads the attributes of an open file whose names start with `prefix`, in a pool thread: as they end a record, see
 * `readEntry`. Rejects as listxattr(2) fails.
 */
export function readAttributes(descriptor: number, prefix: string): Promise<Buffer>;

/**
 * Sets an attribute of an open file, or removes it when the value is null, in a pool thread. Rejects as fsetxattr(2)
 * and fremovexattr(2) fail.
 */
export function writeAttribute(descriptor: number, name: string, value: Buffer | null): Promise<void>;

// --- files/remove.c ---------------------------------------------------------------------------------------

/**
 * Removes what is at `path` and everything below it in a pool thread; never follows a link. What is missing is no
 * error. Source: unlinkat(2).
 */
export function removeTree(path: string): Promise<void>;

// --- files/digest.c ---------------------------------------------------------------------------------------

/** A digest that is being computed. */
export interface NativeDigest {
  readonly kind: unique symbol;
}

/** Starts a digest by an algorithm of OpenSSL's, such as `sha256`. Throws EINVAL for an unknown one. */
export function createDigest(algorithm: string): NativeDigest;

/**
 * Takes in the pieces in a pool thread. Nothing else may be done with the digest, or to the pieces, until the promise
 * is settled.
 */
export function updateDigest(digest: NativeDigest, pieces: readonly Buffer[]): Promise<void>;

/** What has been computed; the digest is of no more use then. */
export function finishDigest(digest: NativeDigest): Buffer;

// --- watch/inotify.c --------------------------------------------------------------------------------------

export interface Inotify {
  /** Adds a watch, or changes the mask of the one there is; returns its descriptor. Source: inotify(7). */
  add(path: Buffer, mask: number): number;
  /** Removes a watch; a descriptor that the kernel has dropped already is no error. */
  remove(descriptor: number): void;
  /**
   * Marks the end of the kernel's queue: an IN_IGNORED event of the returned descriptor, which was never handed
   * out by `add`, follows all that has happened until now. Like any event it is lost when the queue overflows.
   */
  mark(): number;
  /** Takes what has been read, whole `struct inotify_event`s in order, or null when there is nothing. */
  take(): Buffer | null;
  /** Ends the reader thread and closes the inotify descriptor; idempotent. */
  close(): void;
}

/**
 * Opens one inotify instance with a reader thread of its own, so that a busy event loop does not overflow the
 * kernel's queue. The thread holds at most 8 MiB of events that were not taken; beyond that the kernel's queue
 * fills and tells its overflow. `onReadable` is called when there is something to take again after `take`
 * has returned null. Does not keep the process alive. Throws inotify_init1(2)'s errors.
 */
export function openInotify(onReadable: () => void): Inotify;

// --- watch/names.c ----------------------------------------------------------------------------------------

/** Names of entries, one character a byte. */
export interface DirectoryNames {
  readonly directories: string[];
  readonly others: string[];
}

/**
 * Lists the open directory `descriptor` from where it is; the names of what is no directory only if asked for.
 * Throws getdents(2)'s errors.
 */
export function listNames(descriptor: number, withOthers: boolean): DirectoryNames;

// --- memory/address_space.c -------------------------------------------------------------------------------

export interface AddressSpaceReservation {
  /** Gaps of the address space that were reserved. */
  readonly regions: number;
  readonly bytes: bigint;
}

/**
 * Reserves the free gaps of the address space (PROT_NONE, MAP_NORESERVE), so that the kernel packs later
 * mappings, V8's heap pages among them, into whole 2 MiB windows. Call it first of all, once.
 */
export function reserveAddressSpace(): AddressSpaceReservation;

// --- memory/collapse.c ------------------------------------------------------------------------------------

export interface CollapseStatistics {
  /** Private anonymous writable regions that hold at least one aligned 2 MiB window. */
  readonly regions: number;
  /** Aligned 2 MiB windows in them; the sum of the three counts below. */
  readonly chunks: number;
  readonly collapsed: number;
  readonly alreadyHuge: number;
  readonly skipped: number;
  readonly elapsedMs: number;
}

export interface CollapseJob {
  readonly done: Promise<CollapseStatistics>;
  /** Stops before the next window; `done` then resolves with the windows left counted as skipped. */
  cancel(): void;
}

/** Collapses the process' anonymous memory into huge pages, window by window, in a pool thread. */
export function collapseHeap(): CollapseJob;

/** Returns free heap pages to the kernel: `malloc_trim(3)`. True when memory was released. */
export function trimHeap(): boolean;

// --- guest/freeze.c ---------------------------------------------------------------------------------------

/**
 * Writes `1` or `0` to `<cgroup>/cgroup.freeze`; returns as soon as the kernel has taken the request.
 * Source: Documentation/admin-guide/cgroup-v2.rst, "cgroup.freeze".
 */
export function writeFreeze(cgroup: string, frozen: boolean): void;

/** Whether `<cgroup>/cgroup.events` reads `frozen 1`. An empty cgroup that was asked to freeze reads frozen. */
export function isFrozen(cgroup: string): boolean;

// --- guest/fsfreeze.c -------------------------------------------------------------------------------------

/**
 * Freezes or thaws the file system that the directory `path` is on, in a thread of its own. A frozen one can be
 * read; whoever writes to it sleeps, uninterruptibly, until it is thawed. Rejects with EBUSY when it is frozen
 * already, EINVAL when it is not, EOPNOTSUPP when it cannot be. Source: FIFREEZE and FITHAW, linux/fs.h.
 */
export function setFilesystemFrozen(path: string, frozen: boolean): Promise<void>;

// --- guest/clock.c ----------------------------------------------------------------------------------------

/** Sets CLOCK_REALTIME to so many seconds and nanoseconds since the epoch. Source: clock_settime(2). */
export function setRealtimeClock(seconds: bigint, nanoseconds: number): void;

// --- guest/notify.c ---------------------------------------------------------------------------------------

/**
 * Sends `text`, at most 255 bytes, as one datagram to the Unix socket `address` (`@` begins an abstract name).
 * Throws sendto(2)'s errors: EAGAIN instead of waiting, ENAMETOOLONG.
 */
export function notify(address: string, text: string): void;

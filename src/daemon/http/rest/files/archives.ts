import type { FastifyReply, FastifyRequest } from 'fastify';
import type { User } from '../../../linux/system/users.ts';
import type { FileChange } from '../../../services/files/entries/file-change.ts';
import type { BodyCheck } from './content-digests.ts';

/** A directory that a client asks for: `path` is what the client wrote, and `target` the absolute path that it means. */
export interface ArchivedDirectory {
  readonly path: string;
  readonly target: string;
}

/** A format in which `GET /files` sends a directory. */
export interface ArchiveFormat {
  /** The value of the parameter `format`. */
  readonly name: string;
  send(request: FastifyRequest, reply: FastifyReply, directory: ArchivedDirectory): Promise<FastifyReply>;
}

/** What the request for an upload says besides its body. */
export interface ArchiveTarget extends ArchivedDirectory {
  readonly user: User;
  readonly change: FileChange;
  readonly check: BodyCheck | null;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Receives directories as the body of `POST /files`. */
export interface ArchiveUpload {
  /** The content types of such bodies. */
  readonly types: readonly string[];
  /** Resolves with the response. */
  receive(reply: FastifyReply, target: ArchiveTarget): Promise<object>;
}

import { channel } from 'node:diagnostics_channel';

/** A debug line says what a service did, without payloads, file names, arguments and environment. */
export interface DebugLine {
  readonly service: string;
  readonly what: string;
  readonly details: object;
}

const CHANNEL = channel('envd:debug');

/** Reports what a service did. `details` is called only at log level `debug`. */
export function debug(service: string, what: string, details: () => object = () => ({})): void {
  if (CHANNEL.hasSubscribers) CHANNEL.publish({ service, what, details: details() } satisfies DebugLine);
}

export function listenToDebug(listener: (told: DebugLine) => void): void {
  CHANNEL.subscribe((told) => listener(told as DebugLine));
}

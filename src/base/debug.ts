import { channel } from 'node:diagnostics_channel';

/** What a service did, in the words of its log line: no payloads, names of files, arguments or environment. */
export interface Told {
  readonly service: string;
  readonly what: string;
  readonly details: object;
}

const CHANNEL = channel('envd:debug');

/** Tells what a service did. `details` is called only when somebody listens, which is at the log level `debug`. */
export function debug(service: string, what: string, details: () => object = () => ({})): void {
  if (CHANNEL.hasSubscribers) CHANNEL.publish({ service, what, details: details() } satisfies Told);
}

export function listenToDebug(listener: (told: Told) => void): void {
  CHANNEL.subscribe((told) => listener(told as Told));
}

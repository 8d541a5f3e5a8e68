/** A case throws this if it finds that it cannot be run in this guest. */
export class NotRun extends Error {}

/** A case of an extension throws this if the daemon does not offer it. */
export class NotOffered extends Error {}

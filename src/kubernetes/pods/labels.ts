/** The Pod belongs to this template; ConfigMaps with templates have the label, too. */
export const TEMPLATE = 'envd/template';
/** The Pod was made from this version of its template. */
export const REVISION = 'envd/revision';
/** A Pod is `warm` until a sandbox takes it, and `used` from then on. */
export const STATE = 'envd/state';
/** The Pod is the machine of this sandbox. */
export const SANDBOX = 'envd/sandbox';
/** This annotation names the client that owns the sandbox, if there is one. */
export const OWNER = 'envd/owner';

/** Pods have names of their sandboxes, so an id must fit into one, and into a label. */
const NAMEABLE = /^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$/;

/** Returns whether a Pod can have the name and the label of a sandbox or a template. */
export function fitsPodName(id: string): boolean {
  return NAMEABLE.test(id);
}

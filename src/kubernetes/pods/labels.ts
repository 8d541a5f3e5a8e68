/** The Pod belongs to this template; ConfigMaps with templates have the label, too. */
export const TEMPLATE = 'envd/template';
/** The Pod was made from this version of its template. */
export const REVISION = 'envd/revision';
/** A Pod is `warm` until a sandbox takes it, and `used` from then on. */
export const STATE = 'envd/state';
/** The Pod is the machine of this sandbox. */
export const SANDBOX = 'envd/sandbox';
/** The Pod has a policy of its own for what it may reach, so that of all other Pods does not count for it. */
export const EGRESS = 'envd/egress';
/** This annotation names the client that owns the sandbox, if there is one. */
export const OWNER = 'envd/owner';
/** This annotation has what a client has asked for its network, so that a new Pod of a paused sandbox has the same policy. */
export const NETWORK = 'envd/network';
/** The claim of a paused sandbox is for the volume of this name. */
export const VOLUME = 'envd/volume';

/** Pods have names of their sandboxes, so an id must fit into one, and into a label. */
const NAMEABLE = /^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$/;

/** Returns whether a Pod can have the name and the label of a sandbox or a template. */
export function fitsPodName(id: string): boolean {
  return NAMEABLE.test(id);
}

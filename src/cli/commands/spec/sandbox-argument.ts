import type { ArgumentSpec } from './description.ts';

/** An argument that names a sandbox of the gateway. */
export const SANDBOX_ARGUMENT: ArgumentSpec = {
  name: 'sandbox',
  help: 'the id of a sandbox of the gateway, as --sandbox',
  isOptional: true,
  completes: 'sandbox',
};

import {
  choice,
  flag,
  invalid,
  nonEmptyList,
  object,
  parameter,
  presence,
  requiredText,
  type Shape,
  sent,
  text,
  wholeNumber,
} from '../../../../base/shape.ts';
import { requirePathLength } from '../../../linux/paths/paths.ts';

// The routes read these queries and bodies, which proto/envd.openapi.yaml describes.

/** The parameters of downloads and uploads. */
const FILE_PARAMETERS = {
  path: parameter,
  username: parameter,
  signature: parameter,
  // The value is checked together with the signature.
  signature_expiration: sent({ type: 'integer', format: 'int64' }),
};
/** These parameters authorize a caller, so they are read before all others. */
export const CALLER_QUERY = object(FILE_PARAMETERS);

/** Whether the client asks for an archive must be known before the caller is authorized and other parameters are checked. */
export const ARCHIVE_QUERY = object({ format: presence });

/** The query of downloads. `formats` are those of archives, which extensions add. */
export function downloadQuery<T extends string>(formats: readonly T[]) {
  return object({ ...FILE_PARAMETERS, format: choice(formats, null) });
}

/** Permission bits as chmod(1) reads them, without set-id bits; null when absent or empty. */
const permissionBits: Shape<number | null> = {
  schema: { type: 'string', pattern: '^0?[0-7]{3}$' },
  read(value, name) {
    const written = parameter.read(value, name) || null;
    if (written !== null && !/^0?[0-7]{3}$/.test(written))
      throw invalid(name, `an octal number from 0000 to 0777, not '${written}'`);
    return written === null ? null : Number.parseInt(written, 8);
  },
};

export const UPLOAD_QUERY = object({
  ...FILE_PARAMETERS,
  durable: flag,
  append: flag,
  offset: wholeNumber,
  mode: permissionBits,
});

const requiredPath: Shape<string> = {
  ...requiredText,
  read(value, name) {
    const path = requiredText.read(value, name);
    requirePathLength(path, name);
    return path;
  },
};

export const COMPOSE_REQUEST = object({
  source_paths: nonEmptyList(requiredPath),
  destination: requiredPath,
  username: text,
});

import { choice, object } from '../../../base/shape.ts';
import { FILE_PARAMETERS, FORMATS } from '../../http/json/queries.ts';

/** The query of downloads, with the additional format of this extension. */
export const ZIP_DOWNLOAD_QUERY = object({ ...FILE_PARAMETERS, format: choice([...FORMATS, 'zip'], null) });

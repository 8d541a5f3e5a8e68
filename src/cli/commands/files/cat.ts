import { StringDecoder } from 'node:string_decoder';
import { readBytes } from '../../connection/http.ts';
import { remotePath } from '../../transfer/place.ts';
import type { Call } from '../spec/call.ts';
import { defineCommand } from '../spec/command.ts';
import { PATH_ARGUMENT } from './ls.ts';

/** A file that is told as JSON has at most this many bytes, because it is one text. */
const MAX_JSON_BYTES = 256 * 1024 * 1024;

export const catCommand = defineCommand<{ readonly raw?: boolean }>({
  name: 'cat',
  summary: 'Print files',
  examples: ['envctl cat :notes.txt'],
  details: [
    'To a pipe or a file, the content goes byte for byte. On a terminal, control characters are shown as escapes; --raw sends them as they are.',
  ],
  arguments: [{ ...PATH_ARGUMENT, isVariadic: true }],
  options: [{ flags: '--raw', help: 'send control characters to the terminal' }],
  json: 'one line per file: {"path","data":BASE64}',
  async run(call, { raw }) {
    const connection = await call.connection();
    const { output } = call;
    for (const path of call.arguments.map(remotePath)) {
      const response = await connection.http.send({
        path: '/files',
        query: connection.fileQuery(path),
        headers: { 'accept-encoding': 'identity' },
      });
      if (output.isJson)
        await output.json({ path, data: (await readBytes(response, MAX_JSON_BYTES)).toString('base64') });
      else if (output.isTerminal && !raw) await showText(call, response);
      else for await (const piece of response) await output.raw(piece);
    }
    return 0;
  },
});

/** Writes text to a terminal, with control characters as escapes. */
async function showText({ output }: Call, content: AsyncIterable<Buffer>): Promise<void> {
  const decoder = new StringDecoder('utf8');
  for await (const piece of content) await output.text(decoder.write(piece));
  await output.text(decoder.end());
}

'use strict';
// The program of the image of a container: it copies the daemon out, to DIRECTORY/envd, where other containers of a pod see it.
// What was there is replaced when the copy is complete.
const { cpSync, existsSync, renameSync, rmSync, statSync } = require('node:fs');
const { join } = require('node:path');

const [directory, ...rest] = process.argv.slice(2);
if (
  directory === undefined ||
  rest.length > 0 ||
  !statSync(directory, { throwIfNoEntry: false })?.isDirectory()
) {
  process.stderr.write(
    `envd: wanted one argument, a mounted directory that gets the daemon as 'envd', found '${process.argv.slice(2).join(' ')}'\n`,
  );
  process.exit(2);
}
const [place, fresh, old] = ['envd', '.envd-new', '.envd-old'].map((name) => join(directory, name));
for (const left of [fresh, old]) rmSync(left, { recursive: true, force: true });
cpSync('/opt/envd', fresh, { recursive: true, verbatimSymlinks: true });
if (existsSync(place)) renameSync(place, old);
renameSync(fresh, place);
rmSync(old, { recursive: true, force: true });
process.stdout.write(`${join(place, 'bin/envd')}\n`);

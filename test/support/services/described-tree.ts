import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Returns what a sync must make the same: kind, mode, content, and target. `below` is a path that begins with a slash. */
export function describeTree(root: string, below = ''): Record<string, string> {
  const told: Record<string, string> = {};
  for (const name of readdirSync(root + below).toSorted()) {
    const path = `${below}/${name}`;
    const stats = lstatSync(root + path);
    const mode = (stats.mode & 0o777).toString(8);
    if (stats.isSymbolicLink()) told[path] = `-> ${readlinkSync(root + path)}`;
    else if (stats.isFile()) told[path] = `${mode} ${readFileSync(root + path, 'utf8')}`;
    else Object.assign(told, { [path]: `${mode} directory` }, describeTree(root, path));
  }
  return told;
}

import { expect, test } from 'vitest';
import { sectionOf, withRelease } from '../../../systemd/package/changelog.ts';

const LOG =
  '# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- The first.\n';

test('what is unreleased becomes that of a version', () => {
  const released = withRelease(LOG, '0.2.0', '2026-02-03');
  expect(released).toBe(LOG.replace('## [Unreleased]\n', '## [Unreleased]\n\n## [0.2.0] - 2026-02-03\n'));
  expect(sectionOf(released, '0.2.0')).toBe('### Added\n\n- A thing.');
  expect(sectionOf(released, '0.1.0')).toBe('- The first.');
});

test('a version that is there, or without changes, is refused', () => {
  expect(() => withRelease(LOG, '0.1.0', '2026-02-03')).toThrow("already has a version '0.1.0'");
  const released = withRelease(LOG, '0.2.0', '2026-02-03');
  expect(() => withRelease(released, '0.3.0', '2026-02-04')).toThrow('nothing under [Unreleased]');
  expect(() => sectionOf(LOG, '0.9.0')).toThrow("no version '0.9.0'");
});

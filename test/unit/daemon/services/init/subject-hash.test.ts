import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { subjectHash } from '../../../../../src/daemon/services/init/subject-hash.ts';
import { needs } from '../../../../support/machine/needs.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

beforeEach(() => needs('openssl'));

const openssl = (args: readonly string[], input = '') =>
  execFileSync('openssl', args, { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'ignore'] });

test.each([
  ['/CN=plain', ''],
  ['/C=DE/O=Two  Words /CN= Blanks\t around  ', ''],
  ['/O=Grüße aus MÜNCHEN/CN=Ωmega 日本', '-utf8'],
  ['/O=several/CN=values+OU=in one set+O=unsorted', '-multivalue-rdn'],
  [`/O=${'long '.repeat(12)}/OU=${'x'.repeat(60)}/L=${'y'.repeat(100)}/CN=z`, ''],
  ['/DC=org/DC=example/emailAddress=Ada@Example.org/CN=ia5', ''],
])('the subject %s has the hash that OpenSSL gives it', (subject, option) => {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', '/dev/null'];
  const options = option === '' ? [] : [option];
  const pem = openssl(['req', '-x509', ...key, ...options, '-subj', subject]);
  expect(subjectHash(new X509Certificate(pem))).toBe(openssl(['x509', '-noout', '-hash'], pem).trim());
});

test('a subject that is a BMPString, too', () => {
  const file = join(scratch(), 'openssl.cnf');
  const config =
    '[req]\nstring_mask=MASK:0x800\nutf8=yes\nprompt=no\ndistinguished_name=names\n[names]\nCN=Grüße Ω\n';
  writeFileSync(file, config);
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', '/dev/null'];
  const pem = openssl(['req', '-x509', ...key, '-config', file]);
  expect(openssl(['asn1parse'], pem)).toContain('BMPSTRING');
  expect(subjectHash(new X509Certificate(pem))).toBe(openssl(['x509', '-noout', '-hash'], pem).trim());
});

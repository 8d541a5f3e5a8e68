import { formatBytes, formatSeconds } from '../../../output/formats.ts';
import { printable } from '../../../output/printable.ts';
import type { Uploads } from '../files/uploads.ts';
import { useValue } from '../state/observable.ts';

/** How far the uploads are, with the rate and the time left. */
export function UploadBar({ uploads }: { readonly uploads: Uploads }) {
  const { isRunning, files, allFiles, bytes, allBytes, rate, problems } = useValue(uploads.progress);
  if (allFiles === 0) return null;
  const left = rate > 0 ? formatSeconds((allBytes - bytes) / rate) : '-';
  return (
    <div class="upload">
      <progress
        aria-label="Upload"
        max={Math.max(1, allBytes)}
        value={isRunning ? bytes : Math.max(1, allBytes)}
      />
      <span role="status">
        {isRunning ? 'Uploading' : 'Uploaded'} {files} of {allFiles} files, {formatBytes(bytes)} of{' '}
        {formatBytes(allBytes)}, {formatBytes(rate)}/s{isRunning && `, ${left} left`}
      </span>
      <button type="button" onClick={() => (isRunning ? uploads.stop() : uploads.dismiss())}>
        {isRunning ? 'Stop' : 'Dismiss'}
      </button>
      {problems.map((problem) => (
        <p key={problem} class="problem wrap">
          {printable(problem)}
        </p>
      ))}
    </div>
  );
}

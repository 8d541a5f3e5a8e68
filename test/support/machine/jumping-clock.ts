/** Preloaded into a program: at SIGUSR2 its clock jumps forward by an hour. */
const { now } = Date;

process.on('SIGUSR2', () => {
  Date.now = () => now() + 3_600_000;
});

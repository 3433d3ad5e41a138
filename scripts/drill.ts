/** `npm run drill -- run --all --json`: `waybill drill`, from source. */
import './from-source.ts'

process.argv.splice(2, 0, 'drill')
await import('../src/cli/main.ts')

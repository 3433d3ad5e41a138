/**
 * `npm run build`: the dist folder of each package. `npm run build -- --pack <folder>` leaves their tarballs there instead, as they
 * are published.
 */
import { mkdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { buildPackages } from './build-packages.ts'
import { packPackages } from './pack-packages.ts'
import { repositoryRoot } from './run-command.ts'

const { pack } = parseArgs({ options: { pack: { type: 'string' } } }).values
if (pack === undefined) await buildPackages(repositoryRoot, (folder) => join(repositoryRoot, folder, 'dist'))
else {
  await mkdir(pack, { recursive: true })
  for (const tarball of Object.values(await packPackages(repositoryRoot, resolve(pack)))) console.log(tarball)
}

/**
 * `npm run build`: the dist folder.
 */
import { join } from 'node:path'
import { buildPackage } from './build-package.ts'
import { repositoryRoot } from './run-command.ts'

await buildPackage(repositoryRoot, join(repositoryRoot, 'dist'))

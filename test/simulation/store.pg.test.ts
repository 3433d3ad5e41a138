import { proveStores } from './store-suite.ts'

await proveStores({ runs: 15 })

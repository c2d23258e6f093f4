# Sets `out` to the architectures for `cards` (compute capabilities without a point), as CMake names
# them, where the toolkit supports `known` (what nvcc --list-gpu-arch prints). A card that the toolkit
# does not know runs the PTX of the newest architecture that is not newer than the card; of a card that is
# older than all of them, nvcc's error names the architecture.
function(memkern_architectures cards known out)
  string(REGEX MATCHALL "compute_[0-9]+" known "${known}")
  list(TRANSFORM known REPLACE "compute_" "")
  list(SORT known COMPARE NATURAL)
  set(found "")
  foreach(card IN LISTS cards)
    set(runs ${card}-real)
    if(NOT card IN_LIST known)
      foreach(older IN LISTS known)
        if(older LESS card)
          set(runs ${older}-virtual)
        endif()
      endforeach()
    endif()
    list(APPEND found ${runs})
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()
